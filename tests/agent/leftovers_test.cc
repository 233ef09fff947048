// SPDX-License-Identifier: BSD-3-Clause
#include "agent/leftovers.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <spdlog/spdlog.h>

#include "tests/support/workers.h"

namespace {

using namespace ddprun;
using namespace ddprun::agent;

// Notes what each sweep is to leave alone.
struct Swept : test::Workers {
  std::set<pid_t> spared;
  Leftovers leftovers{
      [this](const MonoTime&,
             process::SweepScope scope) -> boost::asio::awaitable<process::SweepResult> {
        spared = std::move(scope.spared);
        co_return process::SweepResult{};
      },
      nullptr, std::make_shared<spdlog::logger>("none")};

  void sweep() {
    bool is_over = false;
    boost::asio::co_spawn(loop, leftovers.end({}, {}),
                          [&](std::exception_ptr, process::SweepResult) { is_over = true; });
    REQUIRE(test::run_until(loop, [&] { return is_over; }));
  }
};

}  // namespace

TEST_SUITE("agent/leftovers") {
  TEST_CASE_FIXTURE(Swept,
                    "what nothing ends is left alone while it lives, and its pid no longer") {
    auto stuck = start("exec sleep 1000");
    const pid_t pid = stuck.pid;
    leftovers.leave(pid);
    sweep();
    CHECK(spared == std::set<pid_t>{pid});
    ::kill(pid, SIGKILL);
    status_of(std::move(stuck));
    sweep();
    CHECK(spared.empty());
  }
}
