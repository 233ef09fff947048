// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/torch_check.h"

#include <doctest/doctest.h>

using ddprun::ddp::check_loaded_torch;
using ddprun::ddp::torch_version_problem;

TEST_SUITE("worker/ddp/torch_check") {
  TEST_CASE("the same minor version is no problem") {
    CHECK(torch_version_problem("2.15", "__version__ = '2.15.1+cu130'\n", "/t") == "");
    CHECK(torch_version_problem("2.1", "from x import y\n__version__ = '2.1.0'\n", "/t") == "");
  }

  TEST_CASE("another one is, with what to do") {
    CHECK(
        torch_version_problem("2.1", "__version__ = '2.15.0+cpu'\ndebug = False\n", "/env/torch") ==
        "this program was built for torch 2.1, and torch 2.15.0+cpu is loaded from /env/torch: "
        "build it again in a new build folder, or install torch 2.1");
  }

  TEST_CASE("a text without a version says nothing") {
    for (const char* text : {"", "__version__ = 7\n", "version = '1.0'\n"})
      CHECK(torch_version_problem("2.15", text, "/t") == "");
  }

  TEST_CASE("this program has the torch that it was built with") {
    CHECK_NOTHROW(check_loaded_torch());
  }
}
