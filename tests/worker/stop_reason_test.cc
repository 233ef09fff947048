// SPDX-License-Identifier: BSD-3-Clause
#include "worker/stop_reason.h"

#include <doctest/doctest.h>

using namespace ddprun::worker;

TEST_SUITE("worker/stop_reason") {
  TEST_CASE("what the agent writes, a worker reads back") {
    for (int cause = 0; cause <= static_cast<int>(StopCause::RunEnded); ++cause) {
      StopReason reason{static_cast<StopCause>(cause), "a sentence", std::nullopt};
      auto read = parse_stop_file(to_stop_file(reason));
      REQUIRE(read);
      CHECK(read->cause == reason.cause);
      CHECK(read->words == reason.words);
      CHECK_FALSE(read->seconds_left);
    }
    auto read = parse_stop_file(to_stop_file({StopCause::Preempted, "two\nlines", 10}));
    REQUIRE(read);
    CHECK(read->words == "two lines");
    CHECK(read->seconds_left == 10);
  }

  TEST_CASE("the file is three lines, the first of which is one word") {
    CHECK(to_stop_file({StopCause::TimeLimit, "the time of job 12 is over", 0}) ==
          "time-limit\nthe time of job 12 is over\n0\n");
  }

  TEST_CASE("what is no such file says nothing") {
    for (const char* text : {"", "\n", "preempt", "preempted by job 12\n", "later-word\nx\n\n"}) {
      CAPTURE(text);
      CHECK_FALSE(parse_stop_file(text));
    }
    CHECK(parse_stop_file("preempted")->words.empty());
    CHECK_FALSE(parse_stop_file("preempted\nx\nsoon\n")->seconds_left);
  }
}
