// SPDX-License-Identifier: BSD-3-Clause
//
// Named tensors as the bytes of a safetensors file, and back.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/ddp/checkpoint/safetensors.h"
#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {

// What a safetensors file of some tensors consists of.
struct EncodedTensors {
  std::string header;
  std::vector<at::Tensor> tensors;  // on the CPU, contiguous, in the file's order

  // The file's bytes in pieces, valid as long as this lives.
  std::vector<std::string_view> pieces() const;
};

// Tensors on the CPU and contiguous are not copied: they must not change until written.  Fails with
// Errc::InvalidInput for a dtype that the format lacks or a name that is there twice.
Result<EncodedTensors> encode_tensors(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata);

// The tensors of a file's `bytes`, which they go on living in.  Fails with Errc::Protocol for what
// is no safetensors file.
Result<std::map<std::string, at::Tensor>> decode_tensors(std::string bytes);

}  // namespace ddprun::ddp
