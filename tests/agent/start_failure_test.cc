// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/start_failure.h"

#include <doctest/doctest.h>

#include <cerrno>

#include <csignal>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

TEST_SUITE("agent/decide/start_failure") {
  WorkerExit end(int exit_code, std::vector<std::string> stderr_lines = {}) {
    return {.status = {.exit_code = exit_code}, .stderr_lines = std::move(stderr_lines)};
  }
  std::optional<std::string> at_once(const WorkerExit& exit) {
    return start_failure(exit, 1s, 0);
  }

  TEST_CASE("a shell's codes for what cannot be executed") {
    CHECK(at_once(end(126)) == "a command cannot be executed (exit code 126)");
    CHECK(at_once(end(127)) == "a command was not found (exit code 127)");
  }

  TEST_CASE("what Python says of a text that cannot run") {
    const std::string missing = "ModuleNotFoundError: No module named 'einops'";
    CHECK(at_once(end(1, {"Traceback (most recent call last):", missing, ""})) == missing);
    CHECK(at_once(end(1, {"  x ==", "       ^", "SyntaxError: invalid syntax"})) ==
          "SyntaxError: invalid syntax");
    CHECK(at_once(end(1, {"TabError: inconsistent use"})));
    CHECK(at_once(end(1, {"/usr/bin/python3: No module named trian"})) ==
          "/usr/bin/python3: No module named trian");
    WorkerExit recorded = end(1, {"rank 0 says goodbye"});
    recorded.report.message = missing + "\nmore";
    CHECK(at_once(recorded) == missing);
  }

  TEST_CASE("what was said is quoted, so that no terminal obeys it") {
    CHECK(at_once(end(1, {"SyntaxError: \x1b[2J"})) == "SyntaxError: \\x1b[2J");
    CHECK(at_once(end(2, {"python3: can't open file '\x1b[2J'"})) ==
          "the script was not found: python3: can't open file '\\x1b[2J'");
  }

  TEST_CASE("usage errors") {
    CHECK(at_once(end(2, {"usage: t.py [-h]", "t.py: error: unrecognized arguments: --lr"})) ==
          "its arguments are wrong: t.py: error: unrecognized arguments: --lr");
    CHECK(at_once(end(2, {"python3: can't open file '/x/t.py': [Errno 2] No such file"})));
    CHECK_FALSE(at_once(end(2)));
    CHECK_FALSE(at_once(end(2, {"usage: it depends", "RuntimeError: boom"})));
    CHECK_FALSE(at_once(end(2, {"t.py: error: lost the data set"})));
  }

  TEST_CASE("in doubt it is a crash") {
    CHECK_FALSE(at_once(end(1)));
    CHECK_FALSE(at_once(end(1, {"ValueError: boom"})));
    CHECK_FALSE(at_once(end(1, {"caught ModuleNotFoundError: x", "RuntimeError: y"})));
    CHECK_FALSE(at_once(end(3, {"ModuleNotFoundError: No module named 'x'"})));
    CHECK_FALSE(start_failure(end(127), kStartLimit + 1s, 0));
    CHECK_FALSE(start_failure(end(127), 1s, 1));
    WorkerExit killed = end(0, {"SyntaxError: x"});
    killed.status = {.signal = SIGKILL};
    CHECK_FALSE(at_once(killed));
  }

  TEST_CASE("the user's own list, with signals as a shell shows them") {
    CHECK(excluded_from_restart({.exit_code = 42}, {42}) ==
          "exit code 42 is one of --no-restart-exit-codes");
    CHECK(excluded_from_restart({.signal = SIGSEGV}, {139}));
    CHECK_FALSE(excluded_from_restart({.exit_code = 42}, {}));
  }

  TEST_CASE("who dies young again and again is waited for") {
    CHECK(restart_delay(0) == 0s);
    CHECK(restart_delay(10) == 0s);
    CHECK(restart_delay(11) == 100ms);
    CHECK(restart_delay(12) == 200ms);
    CHECK(restart_delay(17) == 6400ms);
    CHECK(restart_delay(18) == 10s);
    CHECK(restart_delay(1'000'000) == 10s);
  }

  TEST_CASE("what cannot be started ends the run as a shell would, or for the machine's want") {
    auto code = [](int error) { return exit_code_of_start(system_error(error, "start x")); };
    CHECK(code(ENOENT) == 127);
    CHECK(code(ENOTDIR) == 127);
    CHECK(code(EACCES) == 126);
    CHECK(code(ENOEXEC) == 126);
    CHECK(code(EAGAIN) == 81);
    CHECK(code(ENOMEM) == 81);
  }
}
