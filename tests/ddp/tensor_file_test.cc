// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/tensor_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <cstring>

#include "tests/support/temp_dir.h"
#include "worker/ddp/error.h"

namespace {

using namespace ddprun::ddp;

std::string bytes_of(const std::vector<NamedTensor>& tensors,
                     TensorFormat format = TensorFormat::Safetensors) {
  TensorImage image;
  REQUIRE(image.take(format, tensors, {{"format", "pt"}}).has_value());
  image.complete();
  return std::string(image.bytes());
}

ddprun::Result<TensorMap> decode_tensors(std::string bytes) {
  auto owner = std::make_shared<std::string>(std::move(bytes));
  return tensors_in(owner, owner->data(), owner->size());
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

    for (TensorFormat format : {TensorFormat::Safetensors, TensorFormat::Pt}) {
      std::string bytes = bytes_of(tensors, format);
      CHECK(bytes.size() < 16'000);
      TensorMap read = decode_tensors(bytes).value();
      CHECK(read.size() == tensors.size());
      for (const NamedTensor& item : tensors) {
        CAPTURE(item.name);
        CHECK(kind_of(read[item.name]) == kind_of(item.tensor));
        CHECK(torch::equal(read[item.name].to(at::kDouble).view({-1}),
                           item.tensor.detach().to(at::kDouble).reshape({-1})));
      }
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

  TEST_CASE("many names of one transposed tensor take its memory once") {
    // As a pickle of torch.save() has it: each name refers to the tensor before.
    using namespace std::string_literals;
    constexpr int kNames = 200;
    constexpr std::int64_t kSide = 128;
    auto number = [](std::int64_t value) {
      return "J"s + static_cast<char>(value & 255) + static_cast<char>(value >> 8) + "\0\0"s;
    };
    std::string program = "\x80\2}("s;
    for (int i = 0; i < kNames; ++i) {
      const std::string name = "name" + std::to_string(i);
      program += "X"s + static_cast<char>(name.size()) + "\0\0\0"s + name;
      if (i > 0) {
        program += "h\1"s;
        continue;
      }
      program += "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"s +
                 "X\1\0\0\0"s + "0X\3\0\0\0cpu"s + number(kSide * kSide) + "tQK\0"s +
                 number(kSide) + number(kSide) + "\x86"s + "K\1"s + number(kSide) + "\x86\x89"s +
                 "ccollections\nOrderedDict\n)RtRq\1"s;
    }
    program += "u.";
    const std::size_t bytes = kSide * kSide * sizeof(float);
    zip::Layout layout = zip::lay_out({{"f/data.pkl", program.size()}, {"f/data/0", bytes}});
    auto file = std::make_shared<std::string>(layout.file_bytes, '\0');
    program.copy(file->data() + layout.records[0].begin, program.size());
    torch::Tensor values = torch::arange(kSide * kSide, torch::kFloat).view({kSide, kSide});
    std::memcpy(file->data() + layout.records[1].begin, values.data_ptr(), bytes);
    zip::complete(layout, file->data());
    TensorMap read = tensors_in(file, file->data(), file->size()).value();
    REQUIRE(read.size() == kNames);
    for (const auto& [name, tensor] : read) {
      CHECK(torch::equal(tensor, values.t()));
      const char* at = static_cast<const char*>(tensor.const_data_ptr());
      const bool is_in_file = at >= file->data() && at < file->data() + file->size();
      CHECK(is_in_file);
    }
  }

  TEST_CASE("a dtype that the format lacks is refused") {
    const std::vector<NamedTensor> tensors{{"z", torch::ones({1}, at::kComplexDouble)}};
    CHECK(TensorImage().take(TensorFormat::Safetensors, tensors, {}).error().context ==
          "tensor 'z' of dtype ComplexDouble cannot be written as safetensors");
    CHECK(TensorImage().take(TensorFormat::Pt, tensors, {}).error().context ==
          "tensor 'z' of dtype ComplexDouble cannot be written as .pt");
  }

  TEST_CASE("a file cut anywhere is refused") {
    for (TensorFormat format : {TensorFormat::Safetensors, TensorFormat::Pt}) {
      std::string bytes = bytes_of({{"a", torch::ones({3})}, {"b", torch::ones({2, 2})}}, format);
      for (std::size_t size = 0; size < bytes.size(); ++size) {
        CHECK(!decode_tensors(bytes.substr(0, size)));
      }
    }
  }

  TEST_CASE("a model of another dtype takes the values, as a copy converts them") {
    torch::nn::Linear saved(3, 2);
    saved->to(torch::kDouble);
    const TensorMap tensors{{"weight", saved->weight.detach()}, {"bias", saved->bias.detach()}};
    for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      torch::nn::Linear net(3, 2);
      net->to(dtype);
      REQUIRE(restore_model(*net, tensors).has_value());
      CHECK((net->weight.scalar_type() == dtype));
      CHECK(torch::equal(net->weight, saved->weight.to(dtype)));
      CHECK(torch::equal(net->bias, saved->bias.to(dtype)));
    }
    torch::nn::Linear net(3, 2);
    const torch::Tensor before = net->weight.detach().clone();
    const ddprun::Result<void> done = restore_model(
        *net, {{"weight", torch::ones({2, 3}, at::kComplexFloat)}, {"bias", torch::ones({2})}});
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().context ==
          "'weight' is ComplexFloat [2, 3] in it and Float [2, 3] in the model");
    CHECK(torch::equal(net->weight, before));
  }

  TEST_CASE("a file is replaced whole, and a model takes what it holds") {
    ddprun::test::TempDir folder;
    for (TensorFormat format : {TensorFormat::Safetensors, TensorFormat::Pt}) {
      const std::string path = folder.path() + "/weights";
      torch::nn::Linear first(3, 2), second(3, 2), other(2, 2);
      save_tensors(path, {{"old", torch::ones({2})}}, format);
      save_tensors(path, model_tensors(*first), format);
      load_model(*second, path);
      CHECK(torch::equal(first->weight, second->weight));
      CHECK(torch::equal(first->bias, second->bias));

      const torch::Tensor before = other->weight.detach().clone();
      CHECK_THROWS_WITH_AS(
          load_model(*other, path),
          (path + ": 'weight' is Float [2, 3] in it and Float [2, 2] in the model").c_str(),
          DdpError);
      CHECK(torch::equal(other->weight, before));
      LoadOptions renamed{.name_in_file = [](const std::string& name) { return "net." + name; }};
      CHECK_THROWS_WITH_AS(load_model(*second, path, renamed),
                           (path + ": it has no 'net.weight', which the model has").c_str(),
                           DdpError);
      renamed.allow_partial = true;
      load_model(*second, path, renamed);

      // The tensors live in the file, and do not change it.
      TensorMap tensors = load_tensors(path);
      tensors["bias"].fill_(7);
      CHECK(torch::equal(load_tensors(path)["bias"], first->bias));
    }
    CHECK_THROWS_WITH_AS(load_tensors(folder.path()),
                         (folder.path() + " is no regular file").c_str(), DdpError);
    const std::string fifo = folder.path() + "/fifo";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(load_tensors(fifo), (fifo + " is no regular file").c_str(), DdpError);
  }
}
