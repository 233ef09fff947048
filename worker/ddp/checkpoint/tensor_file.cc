// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/tensor_file.h"

#include <ATen/ATen.h>

#include <array>
#include <cstring>
#include <memory>

namespace ddprun::ddp {
namespace {

struct DtypeName {
  at::ScalarType type;
  const char* name;
};

constexpr std::array kDtypeNames = {
    DtypeName{at::kBool, "BOOL"},
    DtypeName{at::kByte, "U8"},
    DtypeName{at::kChar, "I8"},
    DtypeName{at::kShort, "I16"},
    DtypeName{at::kInt, "I32"},
    DtypeName{at::kLong, "I64"},
    DtypeName{at::kUInt16, "U16"},
    DtypeName{at::kUInt32, "U32"},
    DtypeName{at::kUInt64, "U64"},
    DtypeName{at::kHalf, "F16"},
    DtypeName{at::kBFloat16, "BF16"},
    DtypeName{at::kFloat, "F32"},
    DtypeName{at::kDouble, "F64"},
    DtypeName{at::kComplexFloat, "C64"},
    DtypeName{at::kFloat8_e5m2, "F8_E5M2"},
    DtypeName{at::kFloat8_e4m3fn, "F8_E4M3"},
};

std::string name_of(at::ScalarType type) {
  for (const DtypeName& entry : kDtypeNames) {
    if (entry.type == type) return entry.name;
  }
  return c10::toString(type);  // which the format does not know, so that it is refused by name
}

std::optional<at::ScalarType> type_of(const std::string& name) {
  for (const DtypeName& entry : kDtypeNames) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

at::Tensor copy_of(const char* place, const safetensors::TensorInfo& info, at::ScalarType type) {
  at::Tensor tensor = at::empty(info.shape, type);
  std::memcpy(tensor.mutable_data_ptr(), place, info.end - info.begin);
  return tensor;
}

}  // namespace

std::vector<std::string_view> EncodedTensors::pieces() const {
  std::vector<std::string_view> pieces{header};
  for (const at::Tensor& tensor : tensors) {
    pieces.emplace_back(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return pieces;
}

Result<EncodedTensors> encode_tensors(const std::vector<NamedTensor>& tensors,
                                      const std::map<std::string, std::string>& metadata) {
  std::vector<safetensors::TensorInfo> infos;
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& item : tensors) {
    infos.push_back({.name = item.name,
                     .dtype = name_of(item.tensor.scalar_type()),
                     .shape = item.tensor.sizes().vec()});
    by_name[item.name] = item.tensor;
  }
  Result<std::string> header = safetensors::make_header(infos, metadata);
  if (!header) return header.error();
  EncodedTensors encoded{.header = std::move(*header), .tensors = {}};
  for (const safetensors::TensorInfo& info : infos) {
    encoded.tensors.push_back(by_name[info.name].detach().to(at::kCPU).contiguous());
  }
  return encoded;
}

Result<std::map<std::string, at::Tensor>> decode_tensors(std::string bytes) {
  auto owner = std::make_shared<std::string>(std::move(bytes));
  Result<std::uint64_t> length = safetensors::parse_length(*owner, owner->size());
  if (!length) return length.error();
  const std::size_t data_begin = safetensors::kLengthBytes + *length;
  std::string_view json = std::string_view(*owner).substr(safetensors::kLengthBytes, *length);
  Result<safetensors::Header> header = safetensors::parse_header(json, owner->size() - data_begin);
  if (!header) return header.error();

  std::map<std::string, at::Tensor> tensors;
  for (const safetensors::TensorInfo& info : header->tensors) {
    std::optional<at::ScalarType> type = type_of(info.dtype);
    if (!type) {
      return Error{Errc::Protocol,
                   "tensor '" + info.name + "' has a dtype that LibTorch lacks: " + info.dtype};
    }
    if (info.begin == info.end) {
      tensors[info.name] = at::empty(info.shape, *type);
      continue;
    }
    char* place = owner->data() + data_begin + info.begin;
    // Writers other than ours need not align what they write.
    bool is_aligned = reinterpret_cast<std::uintptr_t>(place) % at::elementSize(*type) == 0;
    tensors[info.name] = is_aligned ? at::from_blob(
                                          place, info.shape, [owner](void*) {}, *type)
                                    : copy_of(place, info, *type);
  }
  return tensors;
}

}  // namespace ddprun::ddp
