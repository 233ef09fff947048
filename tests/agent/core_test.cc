// SPDX-License-Identifier: BSD-3-Clause
//
// Each cell of the table in agent/STATES.md.
#include "agent/core.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

// Plays events and says, in words, what the agent wants done about each.
struct Play {
  Config config{.local_world_size = 2, .max_restarts = 1, .stop_grace = 30s};
  Now now{};
  State state;

  std::string on(const Event& event) {
    Step next = step(state, event, now, config);
    state = std::move(next.state);
    return to_string(next.actions);
  }
  std::string exits(int local_rank, int code) {
    return on(event::WorkerExited{local_rank, {.exit_code = code}});
  }
  std::string killed(int local_rank, int signal) {
    return on(event::WorkerExited{local_rank, {.signal = signal}});
  }
  std::string swept() { return on(event::Swept{}); }
  std::string asked_to_stop(int signal) { return on(event::ShutdownRequested{signal}); }
};

struct Joining : Play {
  Joining() { CHECK(to_string(begin().actions) == "join"); }
};

struct Running : Play {
  Running() { on(event::RoundJoined{}); }
};

struct StoppingAfterFailure : Running {
  StoppingAfterFailure() { killed(1, SIGKILL); }
};

}  // namespace

TEST_SUITE("agent/core") {
  TEST_CASE_FIXTURE(Joining, "a joined round starts the workers") {
    CHECK(on(event::RoundJoined{}) == "start attempt 0");
    CHECK(state.phase == Phase::Running);
  }

  TEST_CASE_FIXTURE(Joining, "a failed rendezvous ends the run with its reason") {
    CHECK(on(event::RendezvousFailed{"port taken"}) == "finish 1");
    CHECK(state.error == "port taken");
  }

  TEST_CASE_FIXTURE(
      Joining, "a signal while joining ends the run, and the round that still comes is ignored") {
    CHECK(asked_to_stop(SIGTERM) == "finish 143");
    CHECK(on(event::RoundJoined{}) == "nothing");
    CHECK(on(event::RendezvousFailed{"late"}) == "nothing");
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    CHECK(on(event::DeadlineReached{}) == "nothing");
  }

  TEST_CASE_FIXTURE(Running,
                    "all workers done: what they left is swept, and the run has succeeded") {
    CHECK(exits(0, 0) == "nothing");
    CHECK(exits(1, 0) == "sweep");
    CHECK(swept() == "finish 0");
    CHECK(state.failures.empty());
  }

  TEST_CASE_FIXTURE(Running, "one failed worker takes its group down, and the group starts again") {
    CHECK(killed(1, SIGKILL) == "signal SIGTERM");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "join");
    CHECK(state.restart_count == 1);
    CHECK(on(event::RoundJoined{}) == "start attempt 1");
  }

  TEST_CASE_FIXTURE(
      Running, "the budget spent, the run ends with the code of the failure, not of its victims") {
    config.max_restarts = 0;
    CHECK(exits(0, 9) == "signal SIGTERM");
    CHECK(killed(1, SIGTERM) == "sweep");
    CHECK(swept() == "finish 9");
    REQUIRE(state.failures.size() == 1);
    CHECK(state.failures[0].local_rank == 0);
    CHECK(state.failures[0].status.exit_code == 9);
  }

  TEST_CASE_FIXTURE(Running,
                    "a worker killed by a signal ends a run without restarts with 128 + n") {
    config = {.local_world_size = 2, .max_restarts = 0};
    killed(0, SIGSEGV);
    exits(1, 0);
    CHECK(swept() == "finish 139");
  }

  TEST_CASE_FIXTURE(Running, "the last worker's failure needs no signal") {
    CHECK(exits(0, 0) == "nothing");
    CHECK(exits(1, 3) == "sweep");
    CHECK(swept() == "join");
  }

  TEST_CASE_FIXTURE(Running, "each attempt records its own first failure") {
    config.max_restarts = 2;
    for (int attempt = 0; attempt < 3; ++attempt) {
      exits(attempt % 2, 5 + attempt);
      exits(1 - attempt % 2, 1);
      swept();
      on(event::RoundJoined{});
      if (state.phase == Phase::Finished) break;
    }
    REQUIRE(state.failures.size() == 3);
    CHECK(state.failures[2].attempt == 2);
    CHECK(state.failures[2].status.exit_code == 7);
    CHECK(state.phase == Phase::Finished);
  }

  TEST_CASE_FIXTURE(Running, "a program that cannot be started is not tried again") {
    CHECK(on(event::StartFailed{.started = 1, .why = "start x: No such file"}) == "signal SIGTERM");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "finish 127");
    CHECK(state.restart_count == 0);
    CHECK(state.error == "start x: No such file");
  }

  TEST_CASE_FIXTURE(Running, "when not even the first worker starts, there is nobody to signal") {
    CHECK(on(event::StartFailed{.started = 0, .why = "no"}) == "sweep");
    CHECK(swept() == "finish 127");
  }

  TEST_CASE_FIXTURE(Running,
                    "a stop signal reaches the workers as it came, and the run ends with 128 + n") {
    CHECK(asked_to_stop(SIGINT) == "signal SIGINT");
    CHECK(exits(0, 0) == "nothing");
    CHECK(killed(1, SIGINT) == "sweep");
    CHECK(swept() == "finish 130");
  }

  TEST_CASE_FIXTURE(Running, "a second stop signal ends the grace") {
    asked_to_stop(SIGINT);
    CHECK(asked_to_stop(SIGINT) == "kill now");
    killed(0, SIGKILL);
    CHECK(killed(1, SIGKILL) == "sweep");
    CHECK(swept() == "finish 130");
  }

  TEST_CASE_FIXTURE(StoppingAfterFailure, "the grace over, the workers are killed") {
    REQUIRE(state.deadline.has_value());
    CHECK(*state.deadline - now.mono == 30s);
    now.mono += config.stop_grace;
    CHECK(on(event::DeadlineReached{}) == "kill now");
    CHECK_FALSE(state.deadline.has_value());
    CHECK(killed(0, SIGKILL) == "sweep");
    CHECK(swept() == "join");
  }

  TEST_CASE_FIXTURE(StoppingAfterFailure, "a stop signal during a stop prevents the restart") {
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    CHECK(killed(0, SIGTERM) == "sweep");
    CHECK(swept() == "finish 143");
    CHECK(state.restart_count == 0);
  }

  TEST_CASE_FIXTURE(Running,
                    "a stop signal after all workers have succeeded does not make it a failure") {
    exits(0, 0);
    exits(1, 0);
    CHECK(asked_to_stop(SIGTERM) == "nothing");
    CHECK(asked_to_stop(SIGTERM) == "kill now");
    CHECK(swept() == "finish 0");
  }

  TEST_CASE_FIXTURE(Running, "a deadline that rings while all is well means nothing") {
    CHECK(on(event::DeadlineReached{}) == "nothing");
  }
}
