// SPDX-License-Identifier: BSD-3-Clause
#include "agent/hang_monitor.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <boost/asio/co_spawn.hpp>
#include <map>

#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

// Shell scripts as workers, under a watch with a short timeout and no stack tools.
struct Job {
  boost::asio::io_context loop;
  process::Reaper reaper{loop.get_executor()};
  test::TempDir folder;
  HangMonitor watch{
      loop.get_executor(),
      reaper,
      HangConfig{.timeout = 1s},
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::null_sink_st>()),
      [](int) { FAIL("every worker here ends by SIGKILL"); },
      [](int) {}};
  std::map<int, process::ExitStatus> ended;

  WatchedWorker start(int local_rank, const std::string& script) {
    auto process = process::spawn(
        {.argv = {"/bin/sh", "-c", script},
         .environment = {"PATH=/usr/bin:/bin", "BEAT=" + heartbeat_path(folder.path())}});
    REQUIRE(process.has_value());
    int pid = process->pid;
    reaper.watch(std::move(*process), [this, local_rank](process::ExitStatus status) {
      ended[local_rank] = status;
      watch.forget(local_rank);
    });
    return {.local_rank = local_rank, .rank = local_rank, .pid = pid, .folder = folder.path()};
  }

  void stop(std::initializer_list<int> pids) {
    for (int pid : pids) ::kill(-pid, SIGKILL);
    bool is_done = false;
    boost::asio::co_spawn(loop, watch.stop(), [&](std::exception_ptr) { is_done = true; });
    REQUIRE(test::run_until(loop, [&] { return is_done; }));
  }
};

}  // namespace

TEST_SUITE("agent/hang_monitor") {
  TEST_CASE("it is the silent worker that has hung, and all show their stacks by SIGABRT") {
    Job job;
    WatchedWorker busy = job.start(0, "while :; do :; done");
    WatchedWorker silent = job.start(1, "exec sleep 1000");
    job.watch.start({busy, silent}, false);
    REQUIRE(test::run_until(job.loop, [&] { return job.ended.size() == 2; }));
    CHECK(job.ended.at(0).signal == SIGABRT);
    CHECK(job.ended.at(1).signal == SIGABRT);
    CHECK(job.watch.cause_of(1).starts_with("hung: no output, CPU time or heartbeat for "));
    CHECK(job.watch.cause_of(0) == "");
    job.stop({});
  }

  TEST_CASE("a heartbeat that ends is noticed, however busy the worker is") {
    Job job;
    WatchedWorker worker = job.start(0, "touch $BEAT; while :; do :; done");
    job.watch.start({worker}, false);
    REQUIRE(test::run_until(job.loop, [&] { return !job.ended.empty(); }));
    CHECK(job.watch.cause_of(0).starts_with("hung: no heartbeat for "));
    job.stop({});
  }

  TEST_CASE("a stopped worker that is deaf to SIGABRT gets SIGKILL") {
    Job job;
    WatchedWorker worker = job.start(0, "trap '' ABRT; kill -STOP $$; exec sleep 1000");
    job.watch.start({worker}, false);
    REQUIRE(test::run_until(job.loop, [&] { return !job.ended.empty(); }));
    CHECK(job.ended.at(0).signal == SIGKILL);
    job.stop({});
  }
}
