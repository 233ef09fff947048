// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/rank_text.h"

#include <doctest/doctest.h>

using namespace ddprun::agent;

TEST_SUITE("agent/decide/rank_text") {
  TEST_CASE("ranks are folded") {
    CHECK(describe_ranks({3, 0, 1, 2, 7, 9, 10}) == "0..3, 7, 9, 10");
    CHECK(describe_ranks({}) == "");
  }

  TEST_CASE("one rank, several ranks") {
    CHECK(name_ranks({3}) == "rank 3");
    CHECK(name_ranks({2, 0, 1}) == "ranks 0..2");
  }
}
