// SPDX-License-Identifier: BSD-3-Clause
//
// The safetensors format: a little-endian length of 8 bytes, that many bytes of JSON which say
// where each named tensor lies, then the tensors' bytes, row-major and little-endian, without a
// gap.  Python reads it with the package of that name; nothing in it can be executed.
//
// Only the header is dealt with here, as text; tensor_file.h reads and writes whole files.  What is
// read is taken for hostile: every number is checked before it is used.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/stored_tensor.h"

namespace ddprun::ddp::safetensors {

// The format's own limit for the JSON.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = 8;

// Its `begin` and `end` are counted from the first byte after the header, and it has no strides.
using TensorInfo = StoredTensor;

struct Header {
  std::vector<TensorInfo> tensors;  // as they lie in the file
  std::map<std::string, std::string> metadata;
};

// The length and the JSON, padded with spaces so that the tensors' bytes start at a multiple of 64.
// `tensors` have name, dtype and shape; their places are assigned here, largest elements first, so
// that each tensor is aligned to its element.  Fails with Errc::InvalidInput for a name that is
// there twice or reserved, a dtype we do not know or a size that overflows.
Result<std::string> make_header(std::vector<TensorInfo>& tensors,
                                const std::map<std::string, std::string>& metadata);

// Reads the length out of the first 8 bytes of a file of `file_bytes`.  Fails with Errc::Protocol
// when the file is too short for it, before anything of that size is allocated.
Result<std::uint64_t> parse_length(std::string_view first_bytes, std::uint64_t file_bytes);

// Parses the JSON of a file whose tensors take `data_bytes`.  Fails with Errc::Protocol, naming the
// tensor, unless names are unique, shapes and places agree, and the tensors cover the data exactly.
Result<Header> parse_header(std::string_view json, std::uint64_t data_bytes);

}  // namespace ddprun::ddp::safetensors
