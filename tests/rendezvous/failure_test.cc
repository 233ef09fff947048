// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/failure.h"

#include <doctest/doctest.h>

#include <csignal>

using namespace ddprun;
using namespace ddprun::rendezvous;

TEST_SUITE("rendezvous/decide/failure") {
  const Failure killed{.rank = 5, .local_rank = 1, .pid = 4211, .status = {.signal = SIGKILL}};

  TEST_CASE("it says which worker, where and how") {
    CHECK(describe(killed) == "rank 5 (local rank 1, pid 4211) was killed by SIGKILL");
    Failure failure = killed;
    failure.message = "the kernel's OOM killer: no memory\nsecond line";
    failure.node = "node7";
    CHECK(describe(failure) ==
          "rank 5 (local rank 1, pid 4211) on node7 was killed by SIGKILL; the kernel's OOM "
          "killer: no memory");
    failure.status = {.exit_code = 1};
    failure.message = "ValueError: boom";
    CHECK(describe_briefly(failure) == "rank 5 on node7 exited with code 1: ValueError: boom");
  }

  TEST_CASE("one that could not be started has no pid") {
    CHECK(describe(Failure{.rank = 2, .node = "n1", .message = "start x: No such file"}) ==
          "rank 2 on n1 could not be started: start x: No such file");
  }

  TEST_CASE("a long message is cut, but not inside a character") {
    Failure failure = killed;
    failure.message = std::string(199, 'x') + "\xc3\xa9 and more";
    CHECK(describe(failure).ends_with("; " + std::string(199, 'x') + "..."));
    failure.message = std::string(198, 'x') + "\xc3\xa9 and more";
    CHECK(describe(failure).ends_with("x\xc3\xa9..."));
  }

  TEST_CASE("what a worker wrote is quoted, so that no terminal obeys it") {
    Failure failure = killed;
    failure.message = "\x1b[2J\x1b]0;title\x07 caf\xc3\xa9 \xff";
    const std::string quoted = "\\x1b[2J\\x1b]0;title\\x07 caf\xc3\xa9 \\xff";
    CHECK(describe(failure).ends_with("; " + quoted));
    CHECK(describe_briefly(failure).ends_with("; " + quoted));
    CHECK(describe(Failure{.message = failure.message}).ends_with(": " + quoted));
    failure.waited_in = "all_reduce";
    failure.suspects = {{.rank = 1, .doing = "sleeps in \x1b[2J"}};
    CHECK(describe_suspects(failure).ends_with("it sleeps in \\x1b[2J"));
  }

  TEST_CASE("a run that ends by it fails with its exit code, whatever that claims to be") {
    CHECK(exit_code_of({.status = {.exit_code = 9}}) == 9);
    CHECK(exit_code_of({.status = {.signal = 9}}) == 137);
    CHECK(exit_code_of({.status = {.signal = 128}}) == 255);
    CHECK(exit_code_of({.status = {}}) == 1);
  }

  TEST_CASE("other nodes get the last lines of the traceback, or else of stderr") {
    Failure failure = killed;
    failure.stderr_tail = "a warning\n";
    CHECK(for_other_nodes(failure).stderr_tail == "a warning\n");
    for (int line = 0; line < 1000; ++line) failure.traceback += "a line\n";
    failure.traceback += "ValueError: boom\n";
    Failure sent = for_other_nodes(failure);
    CHECK(sent.stderr_tail.empty());
    CHECK(sent.traceback.size() <= kOutputBytes);
    CHECK(sent.traceback.starts_with("a line\n"));
    CHECK(sent.traceback.ends_with("\nValueError: boom\n"));
  }

  TEST_CASE("of a single long line they get the end, in whole characters") {
    Failure failure = killed;
    for (int shift = 0; shift < 3; ++shift) {
      failure.traceback = std::string(shift, 'x');
      while (failure.traceback.size() < 2 * kOutputBytes) failure.traceback += "\xe2\x82\xac";
      std::string sent = for_other_nodes(failure).traceback;
      CHECK(sent.size() > kOutputBytes - 3);
      CHECK(sent.starts_with("\xe2\x82\xac"));
    }
  }
}
