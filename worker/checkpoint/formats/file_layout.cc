// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/file_layout.h"

#include <cstring>
#include <set>

#include "worker/checkpoint/formats/pt_file.h"
#include "worker/checkpoint/formats/safetensors.h"

namespace ddprun::ddp {
namespace {

Result<FileLayout> lay_out_safetensors(std::vector<StoredTensor> tensors,
                                       const std::map<std::string, std::string>& metadata) {
  Result<std::string> header = safetensors::make_header(tensors, metadata);
  if (!header) return header.error();
  FileLayout layout;
  layout.file_bytes = header->size();
  for (StoredTensor& tensor : tensors) {
    tensor.begin += header->size();
    tensor.end += header->size();
    layout.file_bytes = tensor.end;
  }
  layout.tensors = std::move(tensors);
  layout.fragments.push_back({0, std::move(*header)});
  return layout;
}

Result<StoredTensors> read_safetensors(std::string_view file) {
  Result<std::uint64_t> length = safetensors::parse_length(file, file.size());
  if (!length) return length.error();
  const std::uint64_t begin = safetensors::kLengthBytes + *length;
  std::string_view json = file.substr(safetensors::kLengthBytes, *length);
  Result<safetensors::Header> header = safetensors::parse_header(json, file.size() - begin);
  if (!header) return header.error();
  for (StoredTensor& tensor : header->tensors) {
    tensor.begin += begin;
    tensor.end += begin;
  }
  return StoredTensors{std::move(header->tensors), std::move(header->metadata)};
}

}  // namespace

const char* extension_of(TensorFormat format) {
  switch (format) {
    case TensorFormat::Safetensors:
      return "safetensors";
    case TensorFormat::Pt:
      return "pt";
  }
  return "";
}

Result<FileLayout> lay_out(TensorFormat format, std::vector<StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata) {
  for (StoredTensor& tensor : tensors) tensor.strides.clear();
  if (format == TensorFormat::Pt) return pt::lay_out(std::move(tensors));
  return lay_out_safetensors(std::move(tensors), metadata);
}

void complete(const FileLayout& layout, char* file) {
  for (const zip::Fragment& fragment : layout.fragments) {
    std::memcpy(file + fragment.place, fragment.bytes.data(), fragment.bytes.size());
  }
  zip::complete(layout.archive, file);
}

Result<StoredTensors> read_tensors(std::string_view file) {
  if (file.starts_with("PK")) return pt::read(file);
  if (file.starts_with("\x80\x02")) {
    return Error{Errc::Protocol,
                 "it is in the format of torch before 1.6: load it in Python and save it again"};
  }
  return read_safetensors(file);
}

}  // namespace ddprun::ddp
