// SPDX-License-Identifier: BSD-3-Clause
#include "store/limited_log.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "store/clock.h"
#include "tests/support/event_loop.h"

using ddprun::mono_now;
using ddprun::MonoTime;
using ddprun::store::LimitedLog;
using ddprun::store::RateLimitedLog;

namespace {

constexpr std::size_t kLines = RateLimitedLog::kLines;

// A log whose clock stands until the test moves it.  It is a window behind the system's: what is
// due by the test's clock is due by the loop's timer at once.
struct Flooded {
  boost::asio::io_context loop;
  MonoTime now = mono_now() - RateLimitedLog::kWindow;
  std::vector<std::string> lines;
  std::unique_ptr<LimitedLog> log = std::make_unique<LimitedLog>(
      loop.get_executor(), [this](const std::string& line) { lines.push_back(line); },
      [this] { return now; });

  void flood(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) log->line("line");
  }

  // The next `count` handlers: there is a timer, so they do not wait.
  void run(int count) {
    loop.restart();
    for (int i = 0; i < count; ++i) loop.run_one();
  }
};

}  // namespace

TEST_SUITE("store/limited_log") {
  TEST_CASE_FIXTURE(Flooded, "the timer says what was left out, where no further line follows") {
    flood(kLines + 7);
    CHECK(lines.size() == kLines);
    now += RateLimitedLog::kWindow;
    REQUIRE(ddprun::test::run_until(loop, [this] { return lines.size() > kLines; }));
    CHECK(lines.back() == "7 lines like the last ones were left out");
    loop.restart();
    CHECK(loop.run() == 0);  // nothing more is waited for
    CHECK(lines.size() == kLines + 1);
  }

  TEST_CASE_FIXTURE(Flooded, "a timer that comes early says nothing, and comes again") {
    flood(kLines + 7);
    run(3);
    CHECK(lines.size() == kLines);
    now += RateLimitedLog::kWindow;
    REQUIRE(ddprun::test::run_until(loop, [this] { return lines.size() > kLines; }));
    CHECK(lines.back() == "7 lines like the last ones were left out");
  }

  TEST_CASE_FIXTURE(Flooded, "each flood has a timer of its own") {
    for (std::size_t flood_number = 1; flood_number <= 3; ++flood_number) {
      CAPTURE(flood_number);
      flood(kLines + flood_number);
      now += RateLimitedLog::kWindow;
      std::size_t told = flood_number * (kLines + 1);
      REQUIRE(ddprun::test::run_until(loop, [&] { return lines.size() == told; }));
      CHECK(lines.back() ==
            std::to_string(flood_number) + " lines like the last ones were left out");
    }
  }

  TEST_CASE_FIXTURE(Flooded, "few lines set no timer") {
    flood(kLines);
    CHECK(loop.run() == 0);
    CHECK(lines.size() == kLines);
  }

  TEST_CASE_FIXTURE(Flooded, "a log that is closed, or gone, says nothing more") {
    flood(kLines + 7);
    now += RateLimitedLog::kWindow;
    SUBCASE("closed") {
      log->close();
    }
    SUBCASE("gone while its timer is due") {
      log.reset();
    }
    loop.restart();
    CHECK(loop.run() == 1);  // the timer's handler, which finds nothing to do
    CHECK(lines.size() == kLines);
  }
}
