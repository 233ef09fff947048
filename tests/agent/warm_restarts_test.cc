// SPDX-License-Identifier: BSD-3-Clause
//
// With a real Python.  What becomes of workers is in tests/e2e/warm_restart_test.py.
#include "agent/warm_restarts.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/workers.h"

using namespace ddprun;

namespace {

// Restarts of one worker, which itself does not run.
struct OneWorker : test::Workers {
  OneWorker() {
    REQUIRE(process::Reaper::become_subreaper().has_value());
    std::ofstream(script) << "import time\ntime.sleep(1000)\n";
  }

  std::string script = folder.path() + "/train.py";
  std::vector<std::string> lines;
  std::vector<std::string> warnings;
  agent::WarmRestarts warm{
      loop.get_executor(),
      reaper,
      {.imports = {},
       .variables = {"RANK"},
       .workers = [] { return std::vector<pid_t>(); },
       .on_info = [this](const std::string& line) { lines.push_back(line); },
       .on_warning = [this](const std::string& line) { warnings.push_back(line); }}};

  // Not one of the scripts that stand for a Python, as pyenv has them.
  static std::string python() {
    const std::string path = std::string("/usr/bin:") + ::getenv("PATH");
    Result<std::string> found = process::find_program("python3", path);
    REQUIRE(found.has_value());
    return *found;
  }

  // Waits until its fork waits, too.
  void make_template() {
    lines.clear();
    warm.workers_run({{.argv = {python(), "-u", script}, .environment = {}}});
    REQUIRE(test::run_until(loop, [&] { return !lines.empty() || !warnings.empty(); }));
    REQUIRE_MESSAGE(warnings.empty(), warnings.front());
  }

  void end() {
    bool is_over = false;
    boost::asio::co_spawn(loop, warm.end(), [&](std::exception_ptr) { is_over = true; });
    REQUIRE(test::run_until(loop, [&] { return is_over; }));
  }
};

}  // namespace

TEST_SUITE("agent/warm_restarts") {
  TEST_CASE_FIXTURE(OneWorker, "a session in which nothing is left is not spared any more") {
    make_template();
    const pid_t session = warm.session();
    REQUIRE(session > 0);
    CHECK(::getsid(session) == session);
    ::kill(session, SIGKILL);  // the template
    REQUIRE(test::run_until(loop, [&] { return warm.session() == 0; }));
    CHECK(::kill(-session, 0) != 0);  // nor is the fork that waited
    REQUIRE(warnings.size() == 1);
    CHECK(warnings.front().find("was killed by SIGKILL") != std::string::npos);
    warnings.clear();
    make_template();
    CHECK(warm.session() > 0);
    end();
  }
}
