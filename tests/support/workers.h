// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <chrono>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "store/base/fd.h"
#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"
#include "worker/process/reaper.h"
#include "worker/process/spawn.h"
#include "worker/process/sweep.h"

namespace ddprun::test {

// Runs shell scripts as workers, with stdout in a file.
struct Workers {
  boost::asio::io_context loop;
  process::Reaper reaper{loop.get_executor()};
  TempDir folder;
  std::string output_path = folder.path() + "/out";

  process::Process start(const std::string& script) {
    Fd output(::open(output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    auto process = process::spawn({.argv = {"/bin/sh", "-c", script},
                                   .environment = {"PATH=/usr/bin:/bin", "GREETING=hello"},
                                   .stdout_fd = output.get()});
    REQUIRE(process.has_value());
    return std::move(*process);
  }

  process::ExitStatus status_of(process::Process process) {
    std::optional<process::ExitStatus> status;
    reaper.watch(std::move(process), [&](process::ExitStatus ended) { status = ended; });
    REQUIRE(run_until(loop, [&] { return status.has_value(); }));
    return *status;
  }

  std::string run(const std::string& script) { return to_string(status_of(start(script))); }

  std::string output() const {
    std::ifstream file(output_path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Waits for a worker to say that it has come so far.
  void wait_for_output(const std::string& text) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (output().find(text) == std::string::npos) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      ::usleep(1000);
    }
  }

  process::SweepResult swept(MonoTime deadline, process::SweepScope scope = {}) {
    std::optional<process::SweepResult> result;
    boost::asio::co_spawn(
        loop, process::sweep(reaper, deadline, std::move(scope)),
        [&](std::exception_ptr, process::SweepResult swept) { result = std::move(swept); });
    REQUIRE(run_until(loop, [&] { return result.has_value(); }));
    return *result;
  }
};

}  // namespace ddprun::test
