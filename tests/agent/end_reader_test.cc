// SPDX-License-Identifier: BSD-3-Clause
#include "agent/end_reader.h"

#include <doctest/doctest.h>

#include <future>
#include <vector>

#include "tests/support/event_loop.h"

namespace {

using namespace ddprun;
using namespace ddprun::agent;

// A disk that stands still until `answer` is given.
struct SlowDisk {
  boost::asio::io_context loop;
  process::IoThread disk{loop.get_executor(), [](const process::IoThread::Stall&) {}};
  std::promise<void> answer;
  std::vector<WorkerExit> told;
  EndReader ends{loop.get_executor(), disk, [this](WorkerExit exit) { told.push_back(exit); }};

  void end(int rank) {
    auto read = [answered =
                     std::make_shared<std::shared_future<void>>(when_answered)](WorkerExit& exit) {
      answered->wait();
      exit.report.message = "from the disk";
    };
    ends.ended({.rank = rank, .status = {.exit_code = 1}}, read);
  }

  std::shared_future<void> when_answered = answer.get_future().share();
};

}  // namespace

TEST_SUITE("agent/end_reader") {
  TEST_CASE_FIXTURE(SlowDisk, "a failure is told with what the disk has, once") {
    end(3);
    answer.set_value();
    REQUIRE(test::run_until(loop, [&] { return disk.is_idle(); }));
    REQUIRE(told.size() == 1);
    CHECK(told[0].rank == 3);
    CHECK(told[0].report.message == "from the disk");
    ends.tell_held();
    CHECK(told.size() == 1);
  }

  TEST_CASE_FIXTURE(SlowDisk, "where the agent cannot wait, ends are told without the disk") {
    end(0);
    end(1);
    CHECK(told.empty());
    ends.tell_held();
    REQUIRE(told.size() == 2);
    CHECK(told[0].rank == 0);
    CHECK(told[1].rank == 1);
    CHECK(told[1].report.message.empty());
    answer.set_value();
    REQUIRE(test::run_until(loop, [&] { return disk.is_idle(); }));
    CHECK(told.size() == 2);
  }
}
