// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/stored_tensor.h"

#include <cstring>

namespace ddprun::ddp {
namespace {

// Copies dimension `depth` and those within it; returns where it has got to in `to`.
char* copy_dimension(const StoredTensor& tensor, std::size_t depth, const char* from,
                     std::uint64_t element, char* to) {
  if (depth == tensor.shape.size()) {
    std::memcpy(to, from, element);
    return to + element;
  }
  for (std::int64_t i = 0; i < tensor.shape[depth]; ++i) {
    const auto shift = static_cast<std::uint64_t>(i * tensor.strides[depth]) * element;
    to = copy_dimension(tensor, depth + 1, from + shift, element, to);
  }
  return to;
}

}  // namespace

std::uint64_t element_bytes(std::string_view dtype) {
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype.starts_with("F8_")) return 1;
  if (dtype == "I16" || dtype == "U16" || dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I32" || dtype == "U32" || dtype == "F32") return 4;
  if (dtype == "I64" || dtype == "U64" || dtype == "F64" || dtype == "C64") return 8;
  return 0;
}

std::optional<std::uint64_t> byte_count(const std::string& dtype,
                                        const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = element_bytes(dtype);
  if (bytes == 0) return std::nullopt;
  bool is_empty = false;
  for (std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) is_empty = true;
    if (!is_empty && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return std::nullopt;
    }
  }
  return is_empty ? 0 : bytes;
}

std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * shape[i - 1];
  return strides;
}

void copy_row_major(const StoredTensor& tensor, std::string_view file, char* to) {
  std::optional<std::uint64_t> bytes = byte_count(tensor.dtype, tensor.shape);
  if (!bytes || *bytes == 0) return;
  const char* from = file.data() + tensor.begin;
  if (tensor.strides.empty()) {
    std::memcpy(to, from, *bytes);
  } else {
    copy_dimension(tensor, 0, from, element_bytes(tensor.dtype), to);
  }
}

}  // namespace ddprun::ddp
