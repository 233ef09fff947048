// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/rate_limited_log.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ddprun::store;

TEST_SUITE("store/decide/rate_limited_log") {
  TEST_CASE("a flood of lines is cut short, counted, and over with its window") {
    std::vector<std::string> lines;
    RateLimitedLog log([&](const std::string& line) { lines.push_back(line); });
    ddprun::MonoTime now{};
    now += std::chrono::hours(1);
    for (int i = 0; i < 1000; ++i) log.line("line", now);
    CHECK(lines.size() == RateLimitedLog::kLines);
    now += RateLimitedLog::kWindow;
    log.line("next", now);
    log.line("one more", now);
    REQUIRE(lines.size() == RateLimitedLog::kLines + 3);
    CHECK(lines[RateLimitedLog::kLines] == "980 lines like the last ones were left out");
    CHECK(lines.back() == "one more");
  }

  TEST_CASE("when a flood has ended, what was left out is told without another line") {
    std::vector<std::string> lines;
    RateLimitedLog log([&](const std::string& line) { lines.push_back(line); });
    ddprun::MonoTime now{};
    now += std::chrono::hours(1);
    for (std::size_t i = 0; i < RateLimitedLog::kLines; ++i) log.line("line", now);
    CHECK_FALSE(log.deadline());
    log.line("line", now);
    REQUIRE(log.deadline() == now + RateLimitedLog::kWindow);
    log.tell_left_out(now);
    CHECK(lines.size() == RateLimitedLog::kLines);
    now += RateLimitedLog::kWindow;
    log.tell_left_out(now);
    REQUIRE(lines.size() == RateLimitedLog::kLines + 1);
    CHECK(lines.back() == "1 lines like the last ones were left out");
    CHECK_FALSE(log.deadline());
    log.line("next", now);
    CHECK(lines.size() == RateLimitedLog::kLines + 2);
  }

  TEST_CASE("a line that is to be written once is counted when it comes again in its window") {
    std::vector<std::string> lines;
    RateLimitedLog log([&](const std::string& line) { lines.push_back(line); });
    ddprun::MonoTime now{};
    now += std::chrono::hours(1);
    for (const char* line : {"a", "a", "b", "a", "b"}) log.line_once(line, now);
    CHECK(lines == std::vector<std::string>{"a", "b"});
    log.line("b", now);
    now += RateLimitedLog::kWindow;
    log.line_once("a", now);
    CHECK(lines ==
          std::vector<std::string>{"a", "b", "b", "3 lines like the last ones were left out", "a"});
  }

  TEST_CASE("without a reader nothing happens") {
    RateLimitedLog(nullptr).line("line", {});
    RateLimitedLog(nullptr).line_once("line", {});
  }
}
