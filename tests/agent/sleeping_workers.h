// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that are processes which sleep, and a tool of a test's own in place of py-spy.
#pragma once

#include <doctest/doctest.h>
#include <signal.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/event_loop.h"
#include "tests/support/fake_workers.h"
#include "tests/support/temp_dir.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"
#include "worker/process/spawn.h"

namespace ddprun::test {

struct SleepingWorkers {
  boost::asio::io_context loop;
  process::Reaper reaper{loop.get_executor()};
  process::IoThread disk{loop.get_executor(), [](const process::IoThread::Stall&) {}};
  TempDir folder;  // the search path of tools, too
  std::vector<std::string> unused;
  FakeWorkers workers{unused};
  std::size_t ended = 0;

  void make_py_spy(const std::string& script) {
    std::string tool = folder.path() + "/py-spy";
    std::ofstream(tool) << script;
    std::filesystem::permissions(tool, std::filesystem::perms::owner_all);
  }
  // `worker` needs no pid.
  void start(agent::RunningWorker worker,
             std::vector<std::string> command = {"/bin/sleep", "1000"}) {
    auto process = process::spawn({.argv = std::move(command), .environment = {}});
    REQUIRE(process.has_value());
    worker.pid = process->pid;
    workers.present.push_back(std::move(worker));
    reaper.watch(std::move(*process), [this](process::ExitStatus) { ++ended; });
  }
  // Ends the workers, and what a test has made of them.
  template <class Part>
  void end(Part& part) {
    for (const agent::RunningWorker& worker : workers.present) ::kill(worker.pid, SIGKILL);
    CHECK(run_until(loop, [this] { return ended >= workers.present.size(); }));
    bool is_done = false;
    boost::asio::co_spawn(loop, part.stop(), [&](std::exception_ptr) { is_done = true; });
    CHECK(run_until(loop, [&] { return is_done; }));
  }
};

}  // namespace ddprun::test
