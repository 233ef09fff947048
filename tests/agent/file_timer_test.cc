// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/file_timer.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

std::string line(int pid, const std::string& scope, double due, int signal = 9) {
  return R"({"version": 1, "pid": )" + std::to_string(pid) + R"(, "scope_id": ")" + scope +
         R"(", "expiration_time": )" + std::to_string(due) + R"(, "signal": )" +
         std::to_string(signal) + "}";
}

}  // namespace

TEST_SUITE("agent/decide/file_timer") {
  TEST_CASE("a timer expires when it is due, and once") {
    FileTimers timers;
    REQUIRE(timers.take(line(7, "step", 100.5)).has_value());
    CHECK(timers.next_due() == WallTime(100500ms));
    CHECK_FALSE(timers.next_expired(WallTime(100400ms)));
    auto expired = timers.next_expired(WallTime(100500ms));
    REQUIRE(expired);
    CHECK(expired->pid == 7);
    CHECK(expired->scope == "step");
    CHECK(expired->signal == 9);
    CHECK_FALSE(timers.next_expired(WallTime(1h)));
    CHECK_FALSE(timers.next_due());
  }

  TEST_CASE("one that is released or set anew does not") {
    FileTimers timers;
    REQUIRE(timers.take(line(7, "a", 100)).has_value());
    REQUIRE(timers.take(line(7, "b", 100)).has_value());
    REQUIRE(timers.take(line(7, "a", -1, 0)).has_value());
    REQUIRE(timers.take(line(7, "b", 300)).has_value());
    REQUIRE(timers.take(line(8, "unknown", -1, 0)).has_value());
    CHECK_FALSE(timers.next_expired(WallTime(200s)));
    CHECK(timers.next_due() == WallTime(300s));
  }

  TEST_CASE("the first that expired comes first, and speaks for its process") {
    FileTimers timers;
    for (int pid : {7, 8}) {
      REQUIRE(timers.take(line(pid, "a", 100 - pid)).has_value());
      REQUIRE(timers.take(line(pid, "b", 100)).has_value());
    }
    CHECK(timers.next_expired(WallTime(200s))->pid == 8);
    CHECK(timers.next_expired(WallTime(200s))->pid == 7);
    CHECK_FALSE(timers.next_expired(WallTime(200s)));
  }

  TEST_CASE("one without a signal says nothing about the others of its process") {
    FileTimers timers;
    REQUIRE(timers.take(line(7, "a", 90, 0)).has_value());
    REQUIRE(timers.take(line(7, "b", 100)).has_value());
    CHECK(timers.next_expired(WallTime(200s))->signal == 0);
    CHECK(timers.next_expired(WallTime(200s))->scope == "b");
  }

  TEST_CASE("what is no timer is refused") {
    FileTimers timers;
    for (const char* text : {"", "x", "[]", "{}", R"({"pid": "7"})", "{\"pid\": 7",
                             R"({"pid": 7, "scope_id": 1, "expiration_time": 1, "signal": 9})"}) {
      CHECK_FALSE(timers.take(text).has_value());
    }
    CHECK(timers.take(line(7, "far", 1e300)).has_value());
    CHECK_FALSE(timers.next_expired(WallTime(1h)));
  }
}
