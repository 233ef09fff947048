// SPDX-License-Identifier: BSD-3-Clause
//
// With a tool of this test's own in place of py-spy, which writes what py-spy would.
#include "agent/inspection.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "store/clock.h"
#include "tests/agent/sleeping_workers.h"
#include "worker/process/proc_files.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
using rendezvous::Whereabouts;

namespace {

const char* const kAsleep =
    "#!/bin/sh\n"
    "echo 'Thread 1 (idle): \"MainThread\"'\n"
    "echo '    load (data.py:40)'\n";
const char* const kWaits =
    "#!/bin/sh\n"
    "echo 'Thread 1 (idle): \"MainThread\"'\n"
    "echo '    all_reduce (torch/distributed/distributed_c10d.py:4181)'\n"
    "echo '    main (train.py:9)'\n";

// One worker that sleeps, and what is found out about it.
struct Job : test::SleepingWorkers {
  std::optional<rendezvous::Findings> found;
  std::unique_ptr<Inspection> inspection;

  explicit Job(const char* py_spy = nullptr, Duration limit = 300ms) {
    if (py_spy != nullptr) make_py_spy(py_spy);
    inspection = std::make_unique<Inspection>(
        loop.get_executor(), reaper, disk,
        InspectionConfig{.limit = limit,
                         .end_limit = limit,
                         .tools = {.environment = {"PATH=/usr/bin:/bin", "TMPDIR=" + folder.path()},
                                   .search_path = folder.path()}},
        workers, [this](rendezvous::Findings findings) { found = std::move(findings); });
    start({.local_rank = 0, .rank = 5});
    const MonoTime deadline = mono_now() + std::chrono::seconds(60);
    auto sleeps = [this] {
      return process::doing_of(worker().pid).find("nanosleep") != std::string::npos;
    };
    while (!sleeps() && mono_now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    REQUIRE(sleeps());
  }
  ~Job() { end(*inspection); }

  RunningWorker& worker() { return workers.present.front(); }
  const rendezvous::Finding& finding() {
    inspection->begin({.in = "all_reduce"});
    REQUIRE(test::run_until(loop, [this] { return found.has_value(); }));
    REQUIRE(found->workers.size() == 1);
    return found->workers.front();
  }
};

}  // namespace

TEST_SUITE("agent/inspection") {
  TEST_CASE("a Python stack says where a worker is") {
    Job job(kAsleep, 2s);
    const auto& finding = job.finding();
    CHECK(finding.rank == 5);
    CHECK(finding.pid == job.worker().pid);
    CHECK(finding.place == Whereabouts::Elsewhere);
    CHECK(finding.doing == "sleeps in load (data.py:40)");
  }

  TEST_CASE("the stack of a worker with a folder stays there") {
    Job job(kWaits, 2s);
    job.worker().folder = job.folder.path();
    CHECK(job.finding().place == Whereabouts::Waits);
    CHECK(std::filesystem::exists(job.folder.path() + "/stack.py-spy"));
  }

  TEST_CASE("without tools a sleep is known by the kernel") {
    Job job;
    CHECK(job.finding().place == Whereabouts::Elsewhere);
    CHECK(job.finding().doing == "sleeps");
  }

  TEST_CASE("without tools one that works is known by its CPU time, where the wait takes none") {
    Job job;
    job.start({.local_rank = 1, .rank = 6}, {"/bin/sh", "-c", "while :; do :; done"});
    const MonoTime deadline = mono_now() + std::chrono::seconds(60);
    auto is_seen = [&job] {  // a busy machine may give it little
      return job.found && job.found->workers.size() == 2 &&
             job.found->workers.back().doing == "is at work";
    };
    while (!is_seen() && mono_now() < deadline) {
      job.found.reset();
      job.inspection->begin({.in = "all_reduce", .is_idle = true});
      REQUIRE(test::run_until(job.loop, [&] { return job.found.has_value(); }));
    }
    REQUIRE(is_seen());
    CHECK(job.found->workers.back().place == Whereabouts::Elsewhere);
  }

  TEST_CASE("a worker whose own wait was over is no suspect") {
    Job job;
    job.worker().stderr_lines = [] {
      return std::vector<std::string>{"RuntimeError: Timed out waiting 3000ms for recv operation"};
    };
    CHECK(job.finding().place == Whereabouts::Waits);
  }

  TEST_CASE("one that lost a peer in another collective waited there") {
    Job job;
    job.worker().stderr_lines = [] {
      return std::vector<std::string>{
          "Traceback (most recent call last):",
          "  File \"/venv/site-packages/torch/distributed/distributed_c10d.py\", line 4055, in "
          "broadcast",
          "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:38100"};
    };
    CHECK(job.finding().place == Whereabouts::Elsewhere);
    CHECK(job.found->workers.front().doing == "waited in broadcast");
  }

  TEST_CASE("one that has ended meanwhile is not named") {
    Job job;
    job.inspection->begin({.in = "all_reduce"});
    ::kill(job.worker().pid, SIGKILL);
    job.workers.present.clear();
    REQUIRE(test::run_until(job.loop, [&] { return job.found.has_value(); }));
    CHECK(job.found->workers.empty());
  }

  TEST_CASE("where a peer was lost, those that are about to end may do so") {
    Job job(nullptr, 1h);
    job.inspection->begin({.in = "all_reduce", .has_lost_peer = true});
    CHECK_FALSE(test::run_until(
        job.loop, [&] { return job.found.has_value(); }, 100ms));
    ::kill(job.worker().pid, SIGKILL);
    job.workers.present.clear();
    REQUIRE(test::run_until(job.loop, [&] { return job.found.has_value(); }));
    CHECK(job.found->workers.empty());
  }

  TEST_CASE("where a peer was lost, one that does not end is not waited for") {
    Job job;
    job.inspection->begin({.in = "all_reduce", .has_lost_peer = true});
    REQUIRE(test::run_until(job.loop, [&] { return job.found.has_value(); }));
    CHECK(job.found->workers.size() == 1);
  }

  TEST_CASE("an interruption ends a tool that hangs, and nothing is found") {
    Job job("#!/bin/sh\ntouch $TMPDIR/started\nexec sleep 1000\n", 1h);
    job.inspection->begin({.in = "all_reduce"});
    const MonoTime deadline = mono_now() + std::chrono::seconds(60);
    auto has_started = [&] { return std::filesystem::exists(job.folder.path() + "/started"); };
    while (!has_started() && mono_now() < deadline) {
      job.loop.restart();
      job.loop.poll();
      std::this_thread::sleep_for(1ms);
    }
    REQUIRE(has_started());
    CHECK(job.inspection->interrupt().size() == 1);
    CHECK_FALSE(job.found);
  }
}
