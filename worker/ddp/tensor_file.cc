// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/tensor_file.h"

#include <ATen/ATen.h>

#include <array>
#include <optional>

#include "store/base/text.h"
#include "worker/checkpoint/durable_file.h"
#include "worker/checkpoint/formats/parallel_for.h"
#include "worker/checkpoint/mapped_file.h"
#include "worker/ddp/error.h"
#include "worker/ddp/own_values.h"

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
  return c10::toString(type);  // which the formats do not know, so that it is refused by name
}

std::optional<at::ScalarType> type_of(const std::string& name) {
  for (const DtypeName& entry : kDtypeNames) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

Error does_not_fit(std::string sentence) {
  return Error{Errc::InvalidInput, std::move(sentence)};
}

// Whether the tensor can stay where it is.  Writers other than ours need not align what they write.
bool is_aligned(const StoredTensor& stored, at::ScalarType type, const char* data) {
  return reinterpret_cast<std::uintptr_t>(data + stored.begin) % at::elementSize(type) == 0;
}

// One tensor of a file: in place where it can stay, with its strides, else copied.
at::Tensor tensor_at(const StoredTensor& stored, at::ScalarType type,
                     const std::shared_ptr<void>& owner, std::string_view file, char* data) {
  char* place = data + stored.begin;
  if (stored.begin != stored.end && is_aligned(stored, type, data)) {
    auto keep = [owner](void*) {};
    if (stored.strides.empty()) return at::from_blob(place, stored.shape, keep, type);
    return at::from_blob(place, stored.shape, stored.strides, keep, type);
  }
  at::Tensor copy = at::empty(stored.shape, type);
  copy_row_major(stored, file, static_cast<char*>(copy.mutable_data_ptr()));
  return copy;
}

// Whether the bytes of both can be copied as they lie.
bool are_alike(const at::Tensor& to, const at::Tensor& from) {
  return to.is_cpu() && from.is_cpu() && to.layout() == at::kStrided &&
         from.layout() == at::kStrided && to.is_contiguous() && from.is_contiguous() &&
         to.scalar_type() == from.scalar_type() && !from.is_conj() && !from.is_neg() &&
         !to.is_conj() && !to.is_neg();
}

// Gives each first tensor the values of the second, which has its shape.
void copy_tensors(const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs) {
  at::NoGradGuard no_grad;
  std::vector<Copy> copies;
  for (const auto& [to, from] : pairs) {
    if (are_alike(to, from)) {
      copies.push_back({static_cast<char*>(to.mutable_data_ptr()),
                        static_cast<const char*>(from.const_data_ptr()), from.nbytes()});
    } else {
      to.copy_(from.detach());
    }
  }
  copy_all(copies);
}

void throw_about(const std::filesystem::path& path, const Error& error) {
  throw DdpError(Error{error.code, path.string() + ": " + error.context});
}

}  // namespace

std::vector<NamedTensor> model_tensors(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors = named_parameters(module, true);
  for (NamedTensor& parameter : tensors) parameter.tensor = own_values_of(parameter.tensor);
  for (NamedTensor& buffer : named_buffers(module, true)) tensors.push_back(std::move(buffer));
  return tensors;
}

StoredTensor stored_form(const NamedTensor& item) {
  return {.name = item.name,
          .dtype = name_of(item.tensor.scalar_type()),
          .shape = item.tensor.sizes().vec()};
}

Result<void> TensorImage::take(TensorFormat format, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<StoredTensor> wanted;
  std::map<std::string, at::Tensor> by_name;
  for (const NamedTensor& item : tensors) {
    if (!is_utf8(item.name)) {
      return Error{Errc::InvalidInput,
                   "the name of a tensor is no UTF-8: '" + printable(item.name) + "'"};
    }
    wanted.push_back(stored_form(item));
    by_name[item.name] = item.tensor;
  }
  Result<FileLayout> layout = lay_out(format, std::move(wanted), metadata);
  if (!layout) return layout.error();
  Result<void> room = staging_.reserve(layout->file_bytes);
  if (!room) return room;
  layout_ = std::move(*layout);

  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const StoredTensor& stored : layout_.tensors) {
    if (stored.begin == stored.end) continue;
    const at::Tensor& tensor = by_name[stored.name];
    char* place = staging_.data() + stored.begin;
    copies.emplace_back(at::from_blob(place, stored.shape, tensor.scalar_type()), tensor);
  }
  copy_tensors(copies);
  return {};
}

Result<void> TensorImage::prepare(std::uint64_t bytes, const std::atomic<bool>& stop) {
  Result<void> room = staging_.reserve(bytes);
  if (room) staging_.touch(stop);
  return room;
}

Result<TensorMap> tensors_in(const std::shared_ptr<void>& owner, char* data, std::size_t size) {
  const std::string_view file(data, size);
  Result<StoredTensors> read = read_tensors(file);
  if (!read) return read.error();
  TensorMap tensors;
  // A file may name the same bytes as often as it likes, and each copy of them costs memory.
  constexpr std::uint64_t kMostCopies = 4;
  std::uint64_t copied = 0;
  for (const StoredTensor& stored : read->tensors) {
    std::optional<at::ScalarType> type = type_of(stored.dtype);
    if (!type) {
      return Error{Errc::Protocol,
                   "tensor '" + stored.name + "' has a dtype that LibTorch lacks: " + stored.dtype};
    }
    if (!is_aligned(stored, *type, data)) copied += stored.end - stored.begin;
    if (copied > kMostCopies * size) {
      return Error{Errc::LimitExceeded,
                   "tensor '" + stored.name +
                       "' is not aligned, nor are others: copies of them would "
                       "take more than four times the file"};
    }
    tensors[stored.name] = tensor_at(stored, *type, owner, file, data);
  }
  return tensors;
}

void save_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                  TensorFormat format) {
  TensorImage image;
  Result<void> taken = image.take(format, tensors, {{"format", "pt"}});
  if (!taken) throw_about(path, taken.error());
  image.complete();
  value_or_throw(replace_durably(path, image.bytes()));
}

TensorMap load_tensors(const std::filesystem::path& path, at::Device device) {
  auto file = std::make_shared<MappedFile>(value_or_throw(MappedFile::open(path)));
  Result<TensorMap> tensors = tensors_in(file, file->data(), file->bytes().size());
  if (!tensors) throw_about(path, tensors.error());
  for (auto& [name, tensor] : *tensors) tensor = tensor.to(device);
  return std::move(*tensors);
}

Result<void> restore_model(torch::nn::Module& module, const TensorMap& saved,
                           const LoadOptions& options) {
  give_back_own_values(module);
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from: once all is known to fit
  TensorMap left = saved;
  for (const NamedTensor& item : model_tensors(module)) {
    std::string name = options.name_in_file ? options.name_in_file(item.name) : item.name;
    auto found = saved.find(name);
    if (found == saved.end()) {
      if (options.allow_partial) continue;
      return does_not_fit("it has no '" + name + "', which the model has");
    }
    // copy_() converts, as load_state_dict() of Python does; it would drop imaginary parts.
    const bool loses = found->second.is_complex() && !item.tensor.is_complex();
    if (found->second.sizes() != item.tensor.sizes() || loses) {
      return does_not_fit("'" + name + "' is " + kind_of(found->second) + " in it and " +
                          kind_of(item.tensor) + " in the model");
    }
    copies.emplace_back(item.tensor, found->second);
    left.erase(name);
  }
  if (!left.empty() && !options.allow_partial) {
    return does_not_fit("it has '" + left.begin()->first + "', which the model has not");
  }
  copy_tensors(copies);
  return {};
}

void load_model(torch::nn::Module& module, const std::filesystem::path& path,
                const LoadOptions& options) {
  Result<void> done = restore_model(module, load_tensors(path), options);
  if (!done) throw_about(path, done.error());
}

}  // namespace ddprun::ddp
