// SPDX-License-Identifier: BSD-3-Clause
//
// A named tensor as it lies in a file, whatever the file's format.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::ddp {

struct StoredTensor {
  std::string name;
  std::string dtype;  // safetensors' names: "F32", "BF16", "I64", ...
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  // where its bytes are
  std::uint64_t end = 0;    // exclusive

  // In elements, from `begin` on; empty: row-major without gaps.  Only Python's own files have
  // others.
  std::vector<std::int64_t> strides = {};

  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

// What a file of tensors holds; places are counted from the file's start.
struct StoredTensors {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> values;  // what is no tensor, as text
};

// The bytes of one element of `dtype`; 0 for one that we do not know.
std::uint64_t element_bytes(std::string_view dtype);

// The bytes of a row-major tensor; nullopt when the dtype is not known, a size is negative or the
// product overflows.
std::optional<std::uint64_t> byte_count(const std::string& dtype,
                                        const std::vector<std::int64_t>& shape);

// The strides of a row-major tensor, in elements.
std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape);

// Copies the tensor out of `file` into `to`, row-major.  REQUIRES: its places are within `file`, as
// the readers make sure, and `to` has room for byte_count().
void copy_row_major(const StoredTensor& tensor, std::string_view file, char* to);

}  // namespace ddprun::ddp
