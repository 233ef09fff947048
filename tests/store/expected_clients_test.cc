// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using ddprun::store::Roll;

namespace {

std::string absent(const Roll& roll) {
  auto absentees = roll.absent(100);
  std::sort(absentees.begin(), absentees.end(),
            [](const auto& a, const auto& b) { return a.who < b.who; });
  std::string text;
  for (const auto& one : absentees) {
    text += (text.empty() ? "" : ", ") + one.who + " " + one.host + ":" + std::to_string(one.pid);
  }
  return text;
}

}  // namespace

TEST_SUITE("store/decide/expected_clients") {
  TEST_CASE("who was announced and has not come is absent, until a client of that pid and host") {
    Roll roll;
    CHECK_FALSE(roll.world_size());
    roll.expect_world(4);
    roll.expect(1, "10.0.0.7", "rank 0", 100);
    roll.expect(1, "10.0.0.7", "rank 1", 101);
    roll.expect(2, "10.0.0.8", "rank 2", 100);
    CHECK(roll.misses(100));
    roll.came("10.0.0.7", 100);
    CHECK(roll.misses(100));
    roll.came("10.0.0.9", 101);
    CHECK(absent(roll) == "rank 1 10.0.0.7:101, rank 2 10.0.0.8:100");
    CHECK(roll.absent_count() == 2);
    CHECK(roll.expected_count() == 3);
    CHECK(roll.world_size() == 4);
    roll.came("10.0.0.8", 100);
    CHECK_FALSE(roll.misses(100));
    CHECK(absent(roll) == "rank 1 10.0.0.7:101");
  }

  TEST_CASE("a worker started again is expected again, in place of the one before") {
    Roll roll;
    roll.expect(1, "h", "rank 0", 100);
    roll.came("h", 100);
    roll.expect(1, "h", "rank 0", 200);
    roll.expect(1, "h", "rank 0", 300);
    CHECK(absent(roll) == "rank 0 h:300");
    CHECK_FALSE(roll.misses(200));
    CHECK(roll.expected_count() == 1);
  }

  TEST_CASE("what a lost announcer expected is void") {
    Roll roll;
    roll.expect(1, "h", "rank 0", 100);
    roll.expect(2, "h", "rank 1", 100);
    roll.forget(1);
    roll.forget(1);
    CHECK(absent(roll) == "rank 1 h:100");
    CHECK(roll.expected_count() == 1);
    roll.clear();
    CHECK(roll.expected_count() == 0);
    CHECK(roll.absent_count() == 0);
  }

  TEST_CASE("a stranger's announcements are bounded, in number and in length") {
    Roll roll;
    for (std::uint32_t i = 0; i < Roll::kMostExpected + 10; ++i) {
      roll.expect(i % 2, "h", "rank " + std::to_string(i), i);
    }
    CHECK(roll.expected_count() == Roll::kMostExpected);
    roll.forget(0);
    roll.expect(1, "h", std::string(1000, 'x'), 7);
    roll.came("h", 7);
    CHECK(roll.expected_count() == Roll::kMostExpected / 2 + 1);
    CHECK(roll.absent(3).size() == 3);
    roll.expect(1, "h", std::string(1000, 'x'), 8);
    CHECK(roll.misses(8));
    CHECK(roll.expected_count() == Roll::kMostExpected / 2 + 1);
  }
}
