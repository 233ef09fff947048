// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/tensor_file.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace {

using namespace ddprun::ddp;

std::string bytes_of(const std::vector<NamedTensor>& tensors) {
  EncodedTensors encoded = encode_tensors(tensors, {{"format", "pt"}}).value();
  std::string bytes;
  for (std::string_view piece : encoded.pieces()) bytes += piece;
  return bytes;
}

}  // namespace

TEST_SUITE("ddp/checkpoint/tensor_file") {
  TEST_CASE("tensors of every dtype, shape and stride come back as they were") {
    std::vector<NamedTensor> tensors;
    for (at::ScalarType type :
         {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16,
          at::kUInt32, at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
          at::kComplexFloat, at::kFloat8_e5m2, at::kFloat8_e4m3fn}) {
      tensors.push_back({c10::toString(type), torch::arange(0, 3).to(type)});
    }
    tensors.push_back({"number", torch::scalar_tensor(2.5)});
    tensors.push_back({"empty", torch::empty({2, 0, 3})});
    tensors.push_back({"transposed", torch::arange(6.0).view({2, 3}).t()});
    tensors.push_back({"every other", torch::arange(10).slice(0, 0, 10, 2)});
    tensors.push_back({"part of a large storage", torch::ones({1000}).slice(0, 5, 6)});
    tensors.push_back({"with a gradient", torch::ones({2}).requires_grad_()});

    std::string bytes = bytes_of(tensors);
    CHECK(bytes.size() < 3000);
    std::map<std::string, at::Tensor> read = decode_tensors(bytes).value();
    CHECK(read.size() == tensors.size());
    for (const NamedTensor& item : tensors) {
      CAPTURE(item.name);
      CHECK(kind_of(read[item.name]) == kind_of(item.tensor));
      CHECK(torch::equal(read[item.name].to(at::kDouble).view({-1}),
                         item.tensor.detach().to(at::kDouble).reshape({-1})));
    }
  }

  TEST_CASE("tensors that another writer has not aligned are read all the same") {
    std::string json = R"({"flag":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("word":{"dtype":"I64","shape":[1],"data_offsets":[1,9]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(json.size());
    std::map<std::string, at::Tensor> read =
        decode_tensors(bytes + json + "\x07" + std::string("\x05\0\0\0\0\0\0\x01", 8)).value();
    CHECK(read["flag"].item<int>() == 7);
    CHECK(read["word"].item<std::int64_t>() == 5 + (std::int64_t{1} << 56));
  }

  TEST_CASE("a dtype that the format lacks is refused") {
    ddprun::Result<EncodedTensors> refused =
        encode_tensors({{"z", torch::ones({1}, at::kComplexDouble)}}, {});
    CHECK(refused.error().context ==
          "tensor 'z' of dtype ComplexDouble cannot be written as safetensors");
  }

  TEST_CASE("a file cut anywhere is refused") {
    std::string bytes = bytes_of({{"a", torch::ones({3})}, {"b", torch::ones({2, 2})}});
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CHECK(!decode_tensors(bytes.substr(0, size)));
    }
    CHECK(!decode_tensors(bytes + "x"));
  }
}
