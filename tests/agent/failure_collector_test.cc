// SPDX-License-Identifier: BSD-3-Clause
#include "agent/failure_collector.h"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace ddprun::agent {

using namespace std::chrono_literals;

TEST_SUITE("agent/failure_collector") {
  const MonoTime kNow{1h};

  WorkerExit exit_of(int rank, process::ExitStatus status) {
    return {.local_rank = rank, .rank = rank, .pid = 100 + rank, .status = status};
  }

  TEST_CASE("a report names those who fell after the last failure, and each once") {
    FailureCollector failures{{}};
    for (std::uint64_t round = 0; round < 2; ++round) {
      failures.round_begins(round);
      failures.workers_run(kNow);
      failures.ended_well(exit_of(2, {}));
      failures.first_failure(exit_of(0, {.exit_code = 3}), "", kNow);
      failures.ended_after(exit_of(1, {.signal = SIGTERM}), false);
    }
    JobReport report = failures.report(RunOutcome{}, "node0");
    CHECK(report.victims.size() == 1);
    CHECK(report.finished == std::vector<int>{2});

    failures.round_begins(2);
    failures.start_failed();
    report = failures.report(RunOutcome{}, "node0");
    CHECK(report.victims.empty());
    CHECK(report.finished.empty());
  }

  TEST_CASE("after a start that failed for want of something the next restart waits") {
    FailureCollector failures{{}};
    failures.round_begins(1);
    CHECK(failures.delay_of_restart() == Duration::zero());
    failures.start_failed();
    CHECK(failures.delay_of_restart() == 1s);
    CHECK(failures.why_delayed() == "this machine lacked what a worker needs to start");
    failures.round_begins(2);
    CHECK(failures.delay_of_restart() == Duration::zero());
  }

  TEST_CASE("a rank that lost the peer which had waited in another collective waited in its own") {
    WorkerExit exit = exit_of(0, {.exit_code = 1});
    exit.stderr_lines = {
        "Traceback (most recent call last):",
        "  File \"/venv/site-packages/torch/distributed/distributed_c10d.py\", line 4181, in "
        "all_reduce",
        "    work.wait()",
        "RuntimeError: [/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:29"};
    auto seen_by_one_in = [&exit](const char* collective) {
      FailureCollector failures{{}};
      failures.round_begins(0);
      failures.asked({.in = collective, .is_idle = true});
      failures.ended_meanwhile(exit);
      return failures.with_ended({}).workers.at(0);
    };
    CHECK(seen_by_one_in("all_reduce").place == rendezvous::Whereabouts::Waits);
    rendezvous::Finding elsewhere = seen_by_one_in("broadcast");
    CHECK(elsewhere.place == rendezvous::Whereabouts::Elsewhere);
    CHECK(elsewhere.doing == "waited in all_reduce");
  }

  TEST_CASE("the kernel's words come before the worker's own, which may be long") {
    const std::string cgroup = (std::filesystem::temp_directory_path() / "ddprun-XXXXXX").string();
    std::string folder = cgroup;
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    std::ofstream(folder + "/memory.events") << "oom_kill 1\n";
    FailureCollector failures{{}};
    failures.round_begins(0);
    failures.workers_run(kNow);
    WorkerExit exit = exit_of(0, {.exit_code = 1});
    exit.cgroup = folder;
    exit.stderr_lines = {"RuntimeError: DataLoader worker was killed"};
    rendezvous::Failure failure = failures.first_failure(exit, "", kNow + 1min);
    CHECK(failure.message.find("OOM killer") < failure.message.find("DataLoader"));
    CHECK(failure.message.ends_with("; RuntimeError: DataLoader worker was killed"));
    std::filesystem::remove_all(folder);
  }
}

}  // namespace ddprun::agent
