// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/error.h"

#include <doctest/doctest.h>

#include <cerrno>

TEST_SUITE("store/base/error") {
  TEST_CASE("a system's failure is told as what was attempted, then the system's own words") {
    CHECK(to_string(ddprun::system_error(EADDRINUSE, "bind 0.0.0.0:29500")) ==
          "bind 0.0.0.0:29500: Address already in use");
  }

  TEST_CASE("a failure of our own is told by its context alone") {
    ddprun::Error error{ddprun::Errc::NotSupported, "--nnodes=2 is not supported yet"};
    CHECK(to_string(error) == "--nnodes=2 is not supported yet");
    CHECK(error.code == ddprun::Errc::NotSupported);
  }

  TEST_CASE("asking a failed result for its value throws") {
    ddprun::Result<int> failed = ddprun::system_error(ENOENT, "open x");
    CHECK_THROWS_WITH(failed.value(), "open x: No such file or directory");
  }
}
