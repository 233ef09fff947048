// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/tail.h"

#include <doctest/doctest.h>

using namespace ddprun::process;
using Lines = std::vector<std::string>;

TEST_SUITE("worker/process/decide/tail") {
  TEST_CASE("the last lines, whole or not") {
    Tail tail;
    CHECK(tail.lines(3) == Lines{});
    tail.feed("one\ntw");
    tail.feed("o\n\nfour");
    CHECK(tail.lines(9) == Lines{"one", "two", "", "four"});
    CHECK(tail.lines(2) == Lines{"", "four"});
    tail.feed("\n");
    CHECK(tail.lines(1) == Lines{"four"});
    CHECK(tail.total_bytes() == 14);
  }

  TEST_CASE("a long stream keeps its end in bounded memory, from a line's start on") {
    Tail tail;
    for (int i = 0; i < 100000; ++i) tail.feed("line " + std::to_string(i) + "\n");
    Lines lines = tail.lines(1'000'000);
    CHECK(lines.back() == "line 99999");
    CHECK(lines.front().starts_with("line "));
    CHECK(lines.size() < 4000);
    tail.feed(std::string(100'000, 'x'));
    CHECK(tail.lines(5).size() == 1);
  }
}
