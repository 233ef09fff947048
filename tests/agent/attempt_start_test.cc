// SPDX-License-Identifier: BSD-3-Clause
#include "agent/attempt_start.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>

using namespace ddprun;
using namespace ddprun::agent;

namespace {

struct Start {
  boost::asio::io_context loop;
  std::vector<int> told;  // of each on_started, how many workers are said to have been started
  AttemptStart start{
      loop.get_executor(),
      {.round = {},
       .workers = 3,
       .program = "python3",
       .on_started =
           [this](const auto& failure) { told.push_back(failure ? failure->started : 3); },
       .on_warning = [](const std::string&) {}}};

  Start() {
    start.set_files_made();
    for (int i = 0; i < 3; ++i) start.worker_forked();
    start.all_forked();
  }
};

}  // namespace

TEST_SUITE("agent/attempt_start") {
  TEST_CASE("failures are told once, when it is known of each worker whether it runs") {
    Start of;
    of.start.fail(1, "no such program", 127, 1);
    of.start.finish();
    CHECK(of.told == std::vector{2});
  }

  TEST_CASE("a failure from before a stop is not forgotten by it") {
    Start of;
    of.start.fail(0, "no such program", 127, 1);
    of.start.fail(1, "no such program", 127, 1);
    auto failure = of.start.set_stopping();
    REQUIRE(failure);
    CHECK(failure->started == 1);
    CHECK(failure->why == "no such program");
    of.start.fail(2, "no such program", 127, 1);
    of.start.finish();
    CHECK(of.told == std::vector{2});  // of the three, one more was not started
  }

  TEST_CASE("a stop without a failure tells nothing") {
    Start of;
    CHECK_FALSE(of.start.set_stopping());
    of.start.finish();
    CHECK(of.told.empty());
  }
}
