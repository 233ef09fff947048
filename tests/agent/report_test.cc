// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/report.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

TEST_SUITE("agent/report/report") {
  const Config config{.local_world_size = 4};
  const rendezvous::Failure killed{
      .rank = 5, .local_rank = 1, .pid = 4211, .status = {.signal = SIGKILL}};

  TEST_CASE("workers are told by their number and ranks") {
    CHECK(describe_workers(0, 2, 2) == "2 workers, ranks 0..1 of 2");
    CHECK(describe_workers(3, 1, 8) == "1 worker, rank 3 of 8");
  }

  TEST_CASE("what follows a failure") {
    CHECK(stopping(3, true, 30s) == "stopping the other 3 workers (at most 30 s), then ");
    CHECK(stopping(1, true, 30s) == "stopping the other worker (at most 30 s), then ");
    CHECK(stopping(4, false, 29s + 1ms) == "stopping 4 workers (at most 30 s), then ");
    CHECK(stopping(2, false, 0s) == "stopping 2 workers (at once), then ");
    CHECK(stopping(0, true, 30s) == "");
    CHECK(restart_of(1, 3) == "restart 1 of 3");
    CHECK(why_no_restart(3) == "the end, since all 3 restarts are spent");
    CHECK(why_no_restart(1) == "the end, since the one restart is spent");
    CHECK(why_no_restart(0) == "the end, since --max-restarts is 0");
  }

  TEST_CASE("a signal to stop is answered with what it does, and what another one would") {
    const MonoTime now{100s};
    auto effect = [&](const State& state, bool is_repeated = false) {
      return effect_of_stop(state, {.is_sigterm_repeated = is_repeated}, SIGTERM, 30s, now);
    };
    State running{.phase = Phase::Running};
    CHECK(effect(running) == "stopping the workers (at most 30 s; a second signal: SIGKILL)");
    CHECK(effect(running, true) == "stopping the workers (at most 30 s)");
    CHECK(effect({.phase = Phase::Waiting}) == "ending");
    State stopping{.phase = Phase::Stopping};
    stopping.deadline = now + 8s;
    CHECK(effect(stopping) == "already stopping (at most 8 s; a second signal: SIGKILL)");
    stopping.shutdown_signal = SIGINT;
    stopping.asked_at = now - kOneRequest + 1ms;
    CHECK(effect(stopping) ==
          "already stopping (at most 8 s; one that comes a second later: SIGKILL)");
    stopping.asked_at = now - kOneRequest;
    CHECK(effect(stopping) == "SIGKILL to what still runs");
    CHECK(effect(stopping, true) == "already stopping (at most 8 s)");
    stopping.is_killed = true;
    CHECK(effect(stopping) == "what still runs has got SIGKILL");
  }

  TEST_CASE("the exit code tells as much as is wanted") {
    RunOutcome spent{.failures = {killed}, .restart_count = 1};
    CHECK(exit_code_in(ExitCodes::Distinct, 82, spent) == 82);
    CHECK(exit_code_in(ExitCodes::Worker, 82, spent) == 137);
    CHECK(exit_code_in(ExitCodes::Worker, 80, {.why = "only 1 of 2 nodes came"}) == 80);
    CHECK(exit_code_in(ExitCodes::Torchrun, 82, spent) == 1);
    CHECK(exit_code_in(ExitCodes::Torchrun, 143, spent) == 1);
    CHECK(exit_code_in(ExitCodes::Torchrun, 0, spent) == 0);
  }

  TEST_CASE("a rank that kept others waiting more than once is named in the closing line") {
    rendezvous::Failure waited = killed;
    waited.waited_in = "all_reduce";
    waited.suspects = {{.rank = 1, .node = "node2"}, {.rank = 2, .node = "node2"}};
    waited.suspect_count = 2;
    CHECK(stragglers({waited, killed}).empty());
    rendezvous::Failure again = waited;
    again.suspects.pop_back();
    again.restart_count = 1;
    CHECK(stragglers({waited, killed, again}) ==
          "rank 1 on node2 kept others waiting in 2 attempts");
    RunOutcome outcome{.failures = {waited, again}, .restart_count = 2};
    CHECK(closing_line({.phase = Phase::Finished}, config, outcome, 0)
              .ends_with("; rank 1 on node2 kept others waiting in 2 attempts"));
  }

  TEST_CASE("of many restarts the closing line tells the first causes") {
    RunOutcome outcome{.failures = {}, .restart_count = 200};
    for (int attempt = 0; attempt < 200; ++attempt) {
      outcome.failures.push_back(killed);
      outcome.failures.back().restart_count = attempt;
    }
    std::string line = closing_line({.phase = Phase::Finished}, config, outcome, 0);
    CHECK(line.size() < 300);
    CHECK(line.find("rank 5 was killed by SIGKILL; and 195 more)") != std::string::npos);
  }

  TEST_CASE("the closing line tells what became of the run, and what happened on the way") {
    State state{.phase = Phase::Finished};
    RunOutcome outcome;
    CHECK(closing_line(state, config, outcome, 0) == "finished: 4 workers succeeded");
    outcome.failures = {killed};
    outcome.restart_count = 1;
    CHECK(closing_line(state, config, outcome, 0) ==
          "finished: 4 workers succeeded after 1 restart (rank 5 was killed by SIGKILL)");
    outcome.failures.push_back(
        {.rank = 0, .pid = 7, .status = {.exit_code = 9}, .restart_count = 1});
    CHECK(closing_line(state, config, outcome, 9) ==
          "failed: rank 0 (local rank 0, pid 7) exited with code 9 after 1 restart "
          "(rank 5 was killed by SIGKILL), exit code 9");
    state.shutdown_signal = SIGTERM;
    CHECK(closing_line(state, config, outcome, 143) ==
          "stopped by SIGTERM after 1 restart (rank 5 was killed by SIGKILL), exit code 143");
    CHECK(stopped_by(SIGTERM, {.outside = "Slurm has preempted job 12", .loss = "n2 was lost"}) ==
          "stopped by SIGTERM: Slurm has preempted job 12; before that n2 was lost");
    CHECK(closing_line({.workers_end = WorkersEnd::Ordered}, config, {}, 0) ==
          "finished: the run has succeeded; this node's workers have not");
    CHECK(closing_line({.error = "start x: No such file or directory"}, config, {}, 127) ==
          "failed: start x: No such file or directory, exit code 127");
    CHECK(closing_line({}, config, {.why = "only 1 of 2 nodes came"}, 1) ==
          "failed: only 1 of 2 nodes came, exit code 1");
    CHECK(closing_line({}, config, {}, 9) == "failed, exit code 9");
    CHECK(closing_line({}, config, {.took_part = false}, 0) ==
          "finished: the run has succeeded, and this node was not needed");
    CHECK(closing_line({}, config, {.why = "this spare was not needed: x", .took_part = false},
                       0) == "finished: this spare was not needed: x");
  }
}
