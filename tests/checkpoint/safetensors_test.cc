// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/safetensors.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace {

using namespace ddprun::ddp::safetensors;

// The error of a header whose JSON is `json` and whose tensors take `bytes`; "" when it is good.
std::string problem_of(std::string_view json, std::uint64_t bytes) {
  ddprun::Result<Header> header = parse_header(json, bytes);
  return header ? "" : header.error().context;
}

constexpr char kPlaced[] = "does not lie where its shape and its neighbours leave it room";

}  // namespace

TEST_SUITE("ddp/checkpoint/safetensors") {
  TEST_CASE("what is written is read back, each tensor aligned to its element") {
    std::vector<TensorInfo> tensors = {{.name = "flag", .dtype = "BOOL", .shape = {3}},
                                       {.name = "weight", .dtype = "F32", .shape = {2, 3}},
                                       {.name = "step", .dtype = "I64", .shape = {}},
                                       {.name = "none", .dtype = "F64", .shape = {0, 5}},
                                       {.name = "half", .dtype = "BF16", .shape = {1}}};
    std::string bytes = make_header(tensors, {{"format", "pt"}}).value();
    CHECK(bytes.size() % 8 == 0);
    std::uint64_t length = parse_length(bytes, bytes.size() + 37).value();
    CHECK(length == bytes.size() - kLengthBytes);

    Header header = parse_header(std::string_view(bytes).substr(kLengthBytes), 37).value();
    CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}});
    CHECK(header.tensors.size() == tensors.size());
    for (const TensorInfo& tensor : header.tensors) {
      CHECK(std::find(tensors.begin(), tensors.end(), tensor) != tensors.end());
      CHECK(tensor.begin % ddprun::ddp::element_bytes(tensor.dtype) == 0);
    }
    CHECK(header.tensors.back().end == 37);
  }

  TEST_CASE("tensors that cannot be written are refused by name") {
    std::vector<TensorInfo> twice = {{.name = "a", .dtype = "F32", .shape = {}},
                                     {.name = "a", .dtype = "F32", .shape = {}}};
    CHECK(make_header(twice, {}).error().context ==
          "tensor 'a' of dtype F32 cannot be written as safetensors");
    std::vector<TensorInfo> reserved = {{.name = "__metadata__", .dtype = "F32", .shape = {}}};
    CHECK(!make_header(reserved, {}));
    std::vector<TensorInfo> unknown = {{.name = "a", .dtype = "ComplexDouble", .shape = {}}};
    CHECK(!make_header(unknown, {}));
    std::vector<TensorInfo> huge = {{.name = "a", .dtype = "F32", .shape = {1LL << 40, 1LL << 40}}};
    CHECK(!make_header(huge, {}));
    std::vector<TensorInfo> no_text = {{.name = "\xff", .dtype = "F32", .shape = {}}};
    CHECK(make_header(no_text, {}).error().context ==
          "a tensor's name or a metadata value is not UTF-8");
  }

  TEST_CASE("a length beyond the file or the format is refused before anything is allocated") {
    CHECK(!parse_length("\x01\x00\x00", 3));
    CHECK(!parse_length(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), 1 << 20));
    CHECK(!parse_length(std::string("\x09\x00\x00\x00\x00\x00\x00\x00", 8), 16));
    CHECK(parse_length(std::string("\x08\x00\x00\x00\x00\x00\x00\x00", 8), 16).value() == 8);
    CHECK(!parse_length(std::string("\x00\xe1\xf5\x06\x00\x00\x00\x00", 8), UINT64_MAX));
  }

  TEST_CASE("tensors must cover the data without a gap, an overlap or a rest") {
    const std::string a = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
    CHECK(problem_of(a + "}", 4) == "");
    CHECK(problem_of(a + "}   ", 4) == "");
    CHECK(problem_of("{}", 0) == "");
    CHECK(problem_of(a + "}", 5) == "the tensors take 4 bytes and the file has 5");
    CHECK(problem_of(a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5) ==
          std::string("tensor 'b' ") + kPlaced);
    CHECK(problem_of(a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", 7) ==
          std::string("tensor 'b' ") + kPlaced);
    CHECK(problem_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]}})", 5) ==
          std::string("tensor 'a' ") + kPlaced);
    CHECK(problem_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[4,0]}})", 0) != "");
    // Sizes whose product overflows to something small.
    CHECK(problem_of(R"({"a":{"dtype":"F64","shape":[2305843009213693952,8],)"
                     R"("data_offsets":[0,0]}})",
                     0) != "");
  }

  TEST_CASE("anything but the format's own fields is refused") {
    const char* const kBad[] = {
        "",
        "[]",
        " {}",
        "{",
        "{} {}",
        R"({"a":1})",
        R"({"a":null})",
        R"({"a":{}})",
        R"({"a":{"dtype":"U8","shape":[0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
        R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0.5],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})",
        R"({"a":{"dtype":"U9","shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":8,"shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":"0","data_offsets":[0,0]}})",
        R"({"__metadata__":{"a":1}})",
        R"({"__metadata__":{"a":"1","a":"2"}})",
        R"({"__metadata__":[]})",
        R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})",
    };
    for (const char* json : kBad) {
      CAPTURE(json);
      CHECK(problem_of(json, 0) != "");
    }
    CHECK(problem_of("{\"a\":" + std::string(1 << 20, '['), 0) != "");
  }

  TEST_CASE("damage anywhere in a header ends in an answer") {
    std::vector<TensorInfo> tensors = {{.name = "w", .dtype = "F32", .shape = {2, 3}},
                                       {.name = "b", .dtype = "F32", .shape = {3}}};
    const std::string good = make_header(tensors, {{"format", "pt"}}).value();
    constexpr unsigned kSeed = 7;
    MESSAGE("seed ", kSeed);
    std::mt19937 random(kSeed);
    int refused = 0;
    for (int round = 0; round < 20'000; ++round) {
      std::string bytes = good;
      for (unsigned change = random() % 3 + 1; change > 0; --change) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      ddprun::Result<std::uint64_t> length = parse_length(bytes, bytes.size() + 36);
      if (length) {
        std::uint64_t data_bytes = bytes.size() + 36 - kLengthBytes - *length;
        if (parse_header(std::string_view(bytes).substr(kLengthBytes, *length), data_bytes))
          continue;
      }
      ++refused;
    }
    CHECK(refused > 15'000);  // a changed letter of a name is as good as the name was
  }
}
