// SPDX-License-Identifier: BSD-3-Clause
#include "worker/timeline_slice.h"

#include <doctest/doctest.h>

#include <chrono>

using namespace ddprun;
using namespace ddprun::worker;
using namespace std::chrono_literals;

TEST_SUITE("worker/timeline_slice") {
  TEST_CASE("what a worker writes, the agent reads back") {
    TimelineSlice slice{.name = "checkpoint",
                        .begin = WallTime(1763733600250ms),
                        .end = WallTime(1763733601500ms),
                        .facts = {{"step", "1200"}, {"folder", "/runs/\"x\"\n/step-1200"}}};
    std::string line = to_timeline_line(slice);
    REQUIRE(line.find('\n') == line.size() - 1);
    line.pop_back();
    auto read = parse_timeline_line(line);
    REQUIRE(read);
    CHECK(read->name == slice.name);
    CHECK(std::chrono::abs(read->begin - slice.begin) < 1ms);
    CHECK(std::chrono::abs(read->end - slice.end) < 1ms);
    CHECK(read->facts == slice.facts);
  }

  TEST_CASE("numbers, truths and texts are facts, and lists are none") {
    auto read = parse_timeline_line(
        R"({"step": 7, "name": "eval", "begin": 5, "loss": 0.5, "end": 6.25, "best": true,)"
        R"( "of": [1], "in": {"a": 1}})");
    REQUIRE(read);
    CHECK(read->begin == WallTime(5s));
    CHECK(read->end == WallTime(6250ms));
    CHECK(read->facts == decltype(read->facts){{"step", "7"}, {"loss", "0.5"}, {"best", "true"}});
  }

  TEST_CASE("what is no such line is nothing") {
    for (const char* line :
         {"", "{", "[]", "7", "\"x\"", R"({"begin": 1, "end": 2})",
          R"({"name": "", "begin": 1, "end": 2})", R"({"name": 5, "begin": 1, "end": 2})",
          R"({"name": "x", "end": 2})", R"({"name": "x", "begin": 1})",
          R"({"name": "x", "begin": 3, "end": 2})", R"({"name": "x", "begin": -1, "end": 2})",
          R"({"name": "x", "begin": 1, "end": 1e300})", R"({"name": "x", "begin": "1", "end": 2})",
          R"({"name": "x", "begin": 1, "end": 1e999})", "{\"name\": \"\xff\", \"begin\": 1}"}) {
      CAPTURE(line);
      CHECK_FALSE(parse_timeline_line(line));
    }
    std::string deep(TimelineSlice::kMostLine, '[');
    CHECK_FALSE(parse_timeline_line(deep));
  }

  TEST_CASE("what is long is cut") {
    std::string facts;
    for (int i = 0; i < 100; ++i) facts += R"(, "f)" + std::to_string(i) + R"(": 1)";
    auto read = parse_timeline_line(R"({"name": ")" + std::string(200, 'n') +
                                    R"(", "begin": 1, "end": 2, "text": ")" +
                                    std::string(2000, 't') + "\"" + facts + "}");
    REQUIRE(read);
    CHECK(read->name == std::string(TimelineSlice::kMostName, 'n') + "...");
    CHECK(read->facts.size() == TimelineSlice::kMostFacts);
    CHECK(read->facts[0].second.size() == TimelineSlice::kMostText + 3);
    CHECK_FALSE(parse_timeline_line(R"({"name": "x", "begin": 1, "end": 2, "t": ")" +
                                    std::string(TimelineSlice::kMostLine, 't') + "\"}"));
  }
}
