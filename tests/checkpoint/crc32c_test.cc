// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/crc32c.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "worker/checkpoint/formats/parallel_for.h"

using ddprun::ddp::copy_all;
using ddprun::ddp::crc32c;
using ddprun::ddp::crc32c_joined;
using ddprun::ddp::crc32c_portable;
using ddprun::ddp::parallel_crc32c;

namespace {

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

}  // namespace

TEST_SUITE("ddp/checkpoint/crc32c") {
  TEST_CASE("the sums of RFC 3720, appendix B.4") {
    std::string ascending(32, '\0');
    for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
    const std::pair<std::string, std::uint32_t> known[] = {
        {"123456789", 0xE3069283},
        {std::string(32, '\0'), 0x8A9136AA},
        {std::string(32, '\xff'), 0x62A8AB43},
        {ascending, 0x46DD794E},
        {"", 0},
    };
    for (const auto& [text, sum] : known) {
      CHECK(crc32c(0, text.data(), text.size()) == sum);
      CHECK(crc32c_portable(0, text.data(), text.size()) == sum);
    }
  }

  TEST_CASE("a sum can be continued at any place") {
    std::string_view text = "a checkpoint is written in pieces of any length";
    std::uint32_t whole = crc32c(0, text.data(), text.size());
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
      std::string_view rest = text.substr(cut);
      CHECK(crc32c(crc32c(0, text.data(), cut), rest.data(), rest.size()) == whole);
      CHECK(crc32c_portable(crc32c_portable(0, text.data(), cut), rest.data(), rest.size()) ==
            whole);
    }
  }

  TEST_CASE("large texts, of which the parts are summed side by side") {
    const std::string text = noise(9'000'001);
    for (std::size_t size : {24'575UL, 24'576UL, 24'577UL, 49'152UL, 100'003UL, text.size()}) {
      CAPTURE(size);
      const std::uint32_t sum = crc32c_portable(7, text.data(), size);
      CHECK(crc32c(7, text.data(), size) == sum);
      CHECK(parallel_crc32c(text.data(), size) == crc32c_portable(0, text.data(), size));
    }
    CHECK(parallel_crc32c(nullptr, 0) == 0);
  }

  TEST_CASE("the sum of two parts follows from theirs") {
    const std::string text = noise(70'000);
    const std::uint32_t whole = crc32c(0, text.data(), text.size());
    for (std::size_t cut : {0UL, 1UL, 9UL, 4096UL, 69'999UL, 70'000UL}) {
      CHECK(crc32c_joined(crc32c(0, text.data(), cut),
                          crc32c(0, text.data() + cut, text.size() - cut),
                          text.size() - cut) == whole);
    }
  }

  TEST_CASE("copies of any size and alignment are made whole, and nothing beside them") {
    const std::string from = noise(20'000'000);
    std::string to(from.size(), 'x');
    std::string expected = to;
    std::vector<ddprun::ddp::Copy> copies;
    const std::size_t places[][3] = {// to, from, bytes
                                     {0, 5, 0},          {1, 7, 1},
                                     {10, 3, 63},        {101, 0, 262'145},
                                     {300'003, 1, 65},   {300'100, 9'000'001, 9'437'185},
                                     {9'737'285, 0, 11}, {10'000'064, 64, 9'999'936}};
    for (auto [place, source, bytes] : places) {
      copies.push_back({to.data() + place, from.data() + source, bytes});
      expected.replace(place, bytes, from, source, bytes);
    }
    copy_all(copies);
    CHECK((to == expected));
  }
}
