// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang_monitor.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <map>

#include "tests/support/event_loop.h"
#include "tests/support/fake_workers.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

class Scripts : public test::FakeWorkers {
  std::vector<std::string> unused_;

 public:
  Scripts() : FakeWorkers(unused_) {}
  void signal_one(int local_rank, int signal) override {
    for (const RunningWorker& worker : present) {
      if (worker.local_rank != local_rank) continue;
      ::kill(worker.pid, signal);
      ::kill(worker.pid, SIGCONT);
    }
  }
};

// Shell scripts as workers, under a watch with a short timeout and no stack tools.
struct Job {
  boost::asio::io_context loop;
  process::Reaper reaper{loop.get_executor()};
  process::IoThread disk{loop.get_executor(), [](const process::IoThread::Stall&) {}};
  test::TempDir folder;
  Scripts workers;
  std::map<int, process::ExitStatus> ended;
  HangMonitor watch{
      loop.get_executor(),
      reaper,
      disk,
      HangMonitorConfig{.decide = {.timeout = 1s}},
      workers,
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_st>()),
      [this](const WorkerExit& exit) { told.push_back(exit.local_rank); },
      [](const RunningWorker&) { FAIL("every worker here ends by SIGKILL"); }};
  std::vector<int> told;  // of whose ends, in order

  void start(int local_rank, const std::string& script) {
    auto process = process::spawn(
        {.argv = {"/bin/sh", "-c", script},
         .environment = {"PATH=/usr/bin:/bin", "BEAT=" + heartbeat_path(folder.path())}});
    REQUIRE(process.has_value());
    workers.present.push_back({.local_rank = local_rank,
                               .rank = local_rank,
                               .pid = process->pid,
                               .folder = folder.path()});
    reaper.watch(std::move(*process), [this, local_rank](process::ExitStatus status) {
      ended[local_rank] = status;
      workers.gone(local_rank);
      if (!watch.take_exit({.local_rank = local_rank, .status = status}))
        told.push_back(local_rank);
    });
  }

  void stop() {
    bool is_done = false;
    boost::asio::co_spawn(loop, watch.stop(), [&](std::exception_ptr) { is_done = true; });
    REQUIRE(test::run_until(loop, [&] { return is_done; }));
  }
};

}  // namespace

TEST_SUITE("agent/hang_monitor") {
  TEST_CASE("it is the silent worker that has hung, and all show their stacks by SIGABRT") {
    Job job;
    job.start(0, "while :; do :; done");
    job.start(1, "exec sleep 1000");
    job.watch.start(false);
    REQUIRE(test::run_until(job.loop, [&] { return job.told.size() == 2; }));
    CHECK(job.ended.at(0).signal == SIGABRT);
    CHECK(job.ended.at(1).signal == SIGABRT);
    CHECK(job.told == std::vector{1, 0});
    CHECK(job.watch.begin_failure(1).cause.starts_with(
        "hung: no output, CPU time or heartbeat for "));
    CHECK_FALSE(job.watch.begin_failure(1).wait);
    CHECK(job.watch.begin_failure(0).cause == "");
    job.stop();
  }

  TEST_CASE("a heartbeat that ends is noticed, however busy the worker is") {
    Job job;
    job.start(0, "touch $BEAT; while :; do :; done");
    job.watch.start(false);
    REQUIRE(test::run_until(job.loop, [&] { return !job.told.empty(); }));
    CHECK(job.watch.begin_failure(0).cause.starts_with("hung: no heartbeat for "));
    job.stop();
  }

  TEST_CASE("a stopped worker that is deaf to SIGABRT gets SIGKILL") {
    Job job;
    job.start(0, "trap '' ABRT; kill -STOP $$; exec sleep 1000");
    job.watch.start(false);
    REQUIRE(test::run_until(job.loop, [&] { return !job.told.empty(); }));
    CHECK(job.ended.at(0).signal == SIGKILL);
    job.stop();
  }
}
