// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun::agent;

TEST_SUITE("agent/report") {
  const Config config{.local_world_size = 4, .max_restarts = 3};
  const Failure killed{.rank = 5, .local_rank = 1, .pid = 4211, .status = {.signal = SIGKILL}};

  TEST_CASE("workers are told by their number and ranks") {
    CHECK(describe_workers(0, 2, 2) == "2 workers, ranks 0..1 of 2");
    CHECK(describe_workers(3, 1, 8) == "1 worker, rank 3 of 8");
  }

  TEST_CASE("a failure says who, how, and what follows") {
    State state{.running = 3, .failures = {killed}};
    CHECK(describe(killed) == "rank 5 (local rank 1, pid 4211) was killed by SIGKILL");
    Failure talkative = killed;
    talkative.message = "ValueError: boom\nsecond line";
    CHECK(describe(talkative) ==
          "rank 5 (local rank 1, pid 4211) was killed by SIGKILL: ValueError: boom");
    CHECK(what_follows(state, config) ==
          "stopping the other 3 workers (at most 30 s), then restart 1 of 3");
    state.running = 0;
    state.restart_count = 3;
    CHECK(what_follows(state, config) == "the end, since all 3 restarts are spent");
    CHECK(what_follows(state, {.max_restarts = 0}) == "the end, since --max-restarts is 0");
  }

  TEST_CASE("the closing line tells what became of the run, and what happened on the way") {
    State state{.phase = Phase::Finished};
    CHECK(closing_line(state, config, 0) == "finished: 4 workers succeeded");
    state.failures = {killed};
    state.restart_count = 1;
    CHECK(closing_line(state, config, 0) ==
          "finished: 4 workers succeeded after 1 restart (rank 5 was killed by SIGKILL)");
    state.failures.push_back({.rank = 0, .pid = 7, .status = {.exit_code = 9}, .attempt = 1});
    CHECK(closing_line(state, config, 9) ==
          "failed: rank 0 (local rank 0, pid 7) exited with code 9 after 1 restart "
          "(rank 5 was killed by SIGKILL), exit code 9");
    state.shutdown_signal = SIGTERM;
    CHECK(closing_line(state, config, 143) ==
          "stopped by SIGTERM after 1 restart (rank 5 was killed by SIGKILL), exit code 143");
    CHECK(closing_line({.error = "start x: No such file or directory"}, config, 127) ==
          "failed: start x: No such file or directory, exit code 127");
  }
}
