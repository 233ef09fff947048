// SPDX-License-Identifier: BSD-3-Clause
//
// The part of Python's pickle format that torch.save() uses for named tensors, as data.  A pickle
// is a program for a small stack machine that may call any function of Python; this one knows the
// handful of functions that rebuild tensors, calls none, and refuses everything else by name.
//
// What is read is taken for hostile: no number in it decides how much is allocated, and its nodes
// are as many as its bytes at most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/stored_tensor.h"

namespace ddprun::ddp::pickle {

// One value of the program.  Nodes may be shared, and a hostile program may tie them into a ring:
// walk them to a limited depth.
struct Node {
  enum class Kind : std::uint8_t {
    None,
    Bool,
    Int,
    Float,
    Text,
    Tuple,
    List,
    Dict,
    Global,   // a function or class of Python, not called
    Storage,  // the bytes of one or several tensors
    Tensor,
  };

  Kind kind = Kind::None;
  std::int64_t integer = 0;  // of Bool, Int; of Storage: its number of elements
  double real = 0;           // of Float
  std::string text;          // of Text; of Global: "module name"; of Storage: its key
  std::string dtype;         // of Storage, Tensor: safetensors' name; of an untyped storage ""
  std::vector<Node*> items;  // of Tuple, List; of Dict: key, value, key, value, ...
  Node* storage = nullptr;   // of Tensor
  std::int64_t offset = 0;   // of Tensor, in elements
  std::vector<std::int64_t> shape, strides;  // of Tensor
};

struct Program {
  std::vector<std::unique_ptr<Node>> nodes;  // all there are, also those that nothing refers to
  Node* result = nullptr;
};

// Runs the program `bytes`.  Fails with Errc::Protocol and what is wrong: an operation or a Python
// name that is not known here ("it asks for 'os system'"), a program that is cut short or makes no
// sense, more than `max_nodes` values.
Result<Program> read(std::string_view bytes, std::size_t max_nodes = 1'000'000);

// The program that makes a plain dict of `tensors`, as torch.load(weights_only=True) accepts it;
// the n-th has its bytes in the storage of key n.  Of a tensor, name, dtype and shape count.
// Fails with Errc::InvalidInput for a dtype that Python does not know by a name of ours.
Result<std::string> write(const std::vector<StoredTensor>& tensors);

}  // namespace ddprun::ddp::pickle
