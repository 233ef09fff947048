// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/host_turns.h"

#include <doctest/doctest.h>

#include <vector>

namespace ddprun::store {
namespace {

using Numbers = std::vector<HostTurns::Number>;

Numbers all_of(HostTurns& turns) {
  Numbers numbers;
  while (auto number = turns.next()) numbers.push_back(*number);
  return numbers;
}

TEST_SUITE("store/host_turns") {
  TEST_CASE("nobody waits in the beginning") {
    HostTurns turns;
    CHECK(turns.empty());
    CHECK(!turns.next());
    CHECK(!turns.has_up_to(100));
  }

  TEST_CASE("those of one host come in their order") {
    HostTurns turns;
    for (int i = 0; i < 4; ++i) turns.add("a");
    CHECK(all_of(turns) == Numbers{1, 2, 3, 4});
    CHECK(turns.empty());
  }

  TEST_CASE("a host that has one waits for one of each other host, however many those have") {
    HostTurns turns;
    for (int i = 0; i < 1000; ++i) turns.add(i % 2 == 0 ? "a" : "b");
    HostTurns::Number one = turns.add("c");
    turns.next();
    turns.next();
    CHECK(turns.next() == one);
  }

  TEST_CASE("who comes again is behind those who wait") {
    HostTurns turns;
    turns.add("a");
    turns.add("b");
    CHECK(turns.next() == 1);
    CHECK(turns.add("a") == 3);
    CHECK(all_of(turns) == Numbers{2, 3});
  }

  TEST_CASE("whether all have had their turn who had come by a certain moment") {
    HostTurns turns;
    for (int i = 0; i < 3; ++i) turns.add("a");
    turns.add("b");
    HostTurns::Number then = turns.last();
    turns.add("b");
    CHECK(turns.next() == 1);
    CHECK(turns.next() == 4);
    CHECK(turns.has_up_to(then));
    CHECK(turns.next() == 2);
    CHECK(turns.next() == 5);
    CHECK(turns.has_up_to(then));
    CHECK(turns.next() == 3);
    CHECK(!turns.has_up_to(then));
  }
}

}  // namespace
}  // namespace ddprun::store
