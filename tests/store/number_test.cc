// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/number.h"

#include <doctest/doctest.h>

#include <cstdint>

using ddprun::leading_number;
using ddprun::number_in;

TEST_SUITE("base/number") {
  TEST_CASE("a number is the whole text") {
    CHECK(number_in<int>("-12") == -12);
    CHECK(number_in<std::uint64_t>("18446744073709551615") == ~std::uint64_t{0});
    CHECK(number_in<double>("0.5") == 0.5);
    for (const char* text : {"", "1 ", " 1", "+1", "1x", "0x1", "-"}) {
      CAPTURE(text);
      CHECK(!number_in<int>(text));
    }
    CHECK(!number_in<unsigned>("-1"));
    CHECK(!number_in<std::uint16_t>("65536"));
  }

  TEST_CASE("a number stands at the beginning") {
    CHECK(leading_number<int>("12 kB\n") == 12);
    CHECK(leading_number<int>("-1\n") == -1);
    CHECK(!leading_number<int>(""));
    CHECK(!leading_number<int>("kB 12"));
    CHECK(!leading_number<std::uint16_t>("65536 "));
  }
}
