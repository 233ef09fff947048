// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/scheduler.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::cli;
using agent::SignalReach;

TEST_SUITE("cli/slurm/scheduler") {
  const SlurmJob job{.id = "12", .node_count = 64, .node = 32, .end = {}};

  TEST_CASE("outside of Slurm there is no scheduler") {
    CHECK_FALSE(slurm_scheduler(std::nullopt, std::nullopt));
  }

  TEST_CASE("outside of a step only the agent is signalled, once") {
    auto scheduler = slurm_scheduler(job, std::nullopt);
    REQUIRE(scheduler);
    CHECK(scheduler->reach == SignalReach::Agent);
    CHECK_FALSE(scheduler->repeats_sigterm);
  }

  TEST_CASE("in a step signals reach whom the site says, and SIGTERM comes twice") {
    auto scheduler = slurm_scheduler(job, SignalReach::EveryProcess);
    REQUIRE(scheduler);
    CHECK(scheduler->reach == SignalReach::EveryProcess);
    CHECK(scheduler->repeats_sigterm);
  }

  TEST_CASE("it is asked about the job, and its answer is read") {
    auto scheduler = slurm_scheduler(job, SignalReach::Agent);
    REQUIRE(scheduler);
    REQUIRE(scheduler->question);
    CHECK(scheduler->question->program == "scontrol");
    CHECK(scheduler->question->arguments == std::vector<std::string>{"-o", "show", "job", "12"});
    CHECK(scheduler->question->environment == std::vector<std::string>{"SLURM_TIME_FORMAT=%s"});
    CHECK(scheduler->question->delay == std::chrono::milliseconds(100));
    CHECK(scheduler->reason_of({SIGTERM}, {}, "").words == "ended from outside by SIGTERM");
    CHECK(scheduler->reason_of({SIGTERM}, {}, "JobId=12 JobState=PREEMPTED").words ==
          "Slurm has preempted job 12");
  }

  TEST_CASE("without a job id nothing is asked") {
    auto scheduler = slurm_scheduler(std::nullopt, SignalReach::Unknown);
    REQUIRE(scheduler);
    CHECK_FALSE(scheduler->question);
    CHECK(scheduler->reason_of({SIGUSR1, false}, {}, "JobId=12 JobState=PREEMPTED").words ==
          "told from outside by SIGUSR1");
  }
}
