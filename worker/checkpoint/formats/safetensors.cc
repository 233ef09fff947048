// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace ddprun::ddp::safetensors {
namespace {

using Json = nlohmann::json;

constexpr char kMetadata[] = "__metadata__";
constexpr std::size_t kAlignment = 64;  // a cache line

Error damaged(std::string sentence) {
  return Error{Errc::Protocol, std::move(sentence)};
}

// Takes the parser's events one by one.  The format is two levels deep with known fields, so
// anything else ends the parse at once, and no document is ever built in memory.
class Reader : public nlohmann::json_sax<Json> {
 public:
  Header header;
  std::string problem;

  bool null() override { return fail("a null"); }
  bool boolean(bool) override { return fail("a boolean"); }
  bool number_float(number_float_t, const string_t&) override { return fail("a fraction"); }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool number_integer(number_integer_t) override { return fail("a negative number"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::List) return fail("a number outside a list");
    if (list_.size() >= kMaxList) return fail("a list that is too long");
    list_.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::Metadata) {
      if (!header.metadata.emplace(key_, value).second) return fail("a key that is there twice");
      return true;
    }
    if (place_ != Place::Tensor || key_ != "dtype") return fail("a string");
    header.tensors.back().dtype = value;
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::Outside:
        place_ = Place::Top;
        return true;
      case Place::Top:
        if (!names_.insert(key_).second) return fail("'" + key_ + "' twice");
        if (key_ == kMetadata) {
          place_ = Place::Metadata;
          return true;
        }
        header.tensors.push_back({.name = key_, .dtype = {}, .shape = {}});
        fields_.clear();
        place_ = Place::Tensor;
        return true;
      case Place::Metadata:
      case Place::Tensor:
      case Place::List:
        break;
    }
    return fail("an object");
  }

  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::Tensor && !fields_.insert(value).second) return fail("a field twice");
    return true;
  }

  bool end_object() override {
    if (place_ == Place::Tensor &&
        fields_ != std::set<std::string>{"data_offsets", "dtype", "shape"}) {
      return fail("fields other than dtype, shape and data_offsets");
    }
    place_ = place_ == Place::Top ? Place::Outside : Place::Top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::Tensor || (key_ != "shape" && key_ != "data_offsets")) {
      return fail("a list");
    }
    place_ = Place::List;
    list_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::Tensor;
    TensorInfo& tensor = header.tensors.back();
    if (key_ == "shape") {
      for (std::uint64_t size : list_) {
        if (size > INT64_MAX) return fail("a size that is too large");
        tensor.shape.push_back(static_cast<std::int64_t>(size));
      }
      return true;
    }
    if (list_.size() != 2) return fail("data_offsets that are not two numbers");
    tensor.begin = list_[0];
    tensor.end = list_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem = "the header is no JSON (at byte " + std::to_string(position) + ")";
    return false;
  }

 private:
  enum class Place : std::uint8_t { Outside, Top, Metadata, Tensor, List };
  static constexpr std::size_t kMaxList = 64;  // dimensions of a tensor

  bool fail(const std::string& what) {
    problem = "the header has " + what + " where the format has none";
    if (place_ == Place::Tensor || place_ == Place::List) {
      problem += ", in tensor '" + header.tensors.back().name + "'";
    }
    return false;
  }

  Place place_ = Place::Outside;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> fields_;  // seen of the tensor at hand
  std::vector<std::uint64_t> list_;
};

}  // namespace

Result<std::string> make_header(std::vector<TensorInfo>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return element_bytes(a.dtype) > element_bytes(b.dtype);
  });
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  std::uint64_t place = 0;
  for (TensorInfo& tensor : tensors) {
    std::optional<std::uint64_t> bytes = byte_count(tensor.dtype, tensor.shape);
    if (!bytes || json.contains(tensor.name) || tensor.name == kMetadata) {
      return Error{Errc::InvalidInput, "tensor '" + tensor.name + "' of dtype " + tensor.dtype +
                                           " cannot be written as safetensors"};
    }
    tensor.begin = place;
    tensor.end = place += *bytes;
    json[tensor.name] = {{"dtype", tensor.dtype},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception&) {
    return Error{Errc::InvalidInput, "a tensor's name or a metadata value is not UTF-8"};
  }
  const std::size_t whole = kLengthBytes + text.size();
  text.resize((whole + kAlignment - 1) / kAlignment * kAlignment - kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes) {
    return Error{Errc::LimitExceeded, "too many tensors for one safetensors file"};
  }
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  }
  return length + text;
}

Result<std::uint64_t> parse_length(std::string_view first_bytes, std::uint64_t file_bytes) {
  if (first_bytes.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return damaged("the file is shorter than a safetensors header");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(first_bytes[i])} << (8 * i);
  }
  if (length > kMaxHeaderBytes || length > file_bytes - kLengthBytes) {
    return damaged("the header's length of " + std::to_string(length) +
                   " bytes is more than the file or the format allows");
  }
  return length;
}

Result<Header> parse_header(std::string_view json, std::uint64_t data_bytes) {
  if (!json.starts_with('{')) return damaged("the header does not start with '{'");
  Reader reader;
  if (!Json::sax_parse(json, &reader)) return damaged(reader.problem);

  Header header = std::move(reader.header);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  std::uint64_t place = 0;
  for (const TensorInfo& tensor : header.tensors) {
    std::optional<std::uint64_t> bytes = byte_count(tensor.dtype, tensor.shape);
    if (!bytes) {
      return damaged("tensor '" + tensor.name +
                     "' has a dtype or shape that is not known: " + tensor.dtype);
    }
    if (tensor.begin != place || tensor.end < tensor.begin || tensor.end - tensor.begin != *bytes) {
      return damaged("tensor '" + tensor.name +
                     "' does not lie where its shape and its neighbours "
                     "leave it room");
    }
    place = tensor.end;
  }
  if (place != data_bytes) {
    return damaged("the tensors take " + std::to_string(place) + " bytes and the file has " +
                   std::to_string(data_bytes));
  }
  return header;
}

}  // namespace ddprun::ddp::safetensors
