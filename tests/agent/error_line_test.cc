// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/error_line.h"

#include <doctest/doctest.h>

#include <string>

namespace ddprun::agent {

TEST_SUITE("agent/report/error_line") {
  TEST_CASE("nothing was said") {
    CHECK(telling_line({}).empty());
    CHECK(telling_line({"", " \t\r"}).empty());
  }

  TEST_CASE("an exception says more than what follows it") {
    CHECK(telling_line({"ValueError: first", "my.module.CustomError: sample 17", "cleaning up"}) ==
          "my.module.CustomError: sample 17");
    CHECK(telling_line({"KeyboardInterrupt", ""}) == "KeyboardInterrupt");
    CHECK(telling_line({"[rank1]: Traceback (most recent call last):", "[rank1]:   File \"a.py\"",
                        "[rank1]: RuntimeError: sizes differ"}) == "RuntimeError: sizes differ");
    CHECK(telling_line({"[rank1 is not there", "[rank]: no number", "[rank12"}) == "[rank12");
  }

  TEST_CASE("a C++ exception that nobody caught") {
    CHECK(telling_line({"terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                        "  what():  op.preamble.length <= op.nbytes. 2048 vs 4", "", ""}) ==
          "op.preamble.length <= op.nbytes. 2048 vs 4");
    CHECK(telling_line({"terminate called without an active exception", "  what():  "}) ==
          "  what():  ");
  }

  TEST_CASE("torch's remarks are not the last words, nor is a dump of stacks") {
    CHECK(telling_line({"the model is broken",
                        "[W1122 03:58:17.131 socket.cpp:767] Warning: no name for this address",
                        "[I1122 03:58:17.131 x.cpp:1] so"}) == "the model is broken");
    CHECK(telling_line({"cannot go on: no data", "Fatal Python error: Aborted", "",
                        "Thread 0x00007f0000000000 (most recent call first):",
                        "  File \"/usr/lib/python3/threading.py\", line 320 in wait", "",
                        "Current thread 0x00007f1 (most recent call first):",
                        "  File \"train.py\", line 6 in <module>", "",
                        "Extension modules: numpy.core (total: 1)"}) == "cannot go on: no data");
    CHECK(telling_line({"[What is this]"}) == "[What is this]");
  }

  TEST_CASE("where there is nothing else, they are quoted all the same") {
    CHECK(telling_line({"[W1122 a] one", "[W1122 b] two", ""}) == "[W1122 b] two");
  }
}

}  // namespace ddprun::agent
