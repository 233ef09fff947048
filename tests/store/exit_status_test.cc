// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/exit_status.h"

#include <doctest/doctest.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>

using namespace ddprun::process;

TEST_SUITE("store/base/exit_status") {
  TEST_CASE("signals have the names that the C library gives them") {
    int named = 0;
    for (int signal = 0; signal <= NSIG; ++signal) {
      CAPTURE(signal);
      if (const char* name = ::sigabbrev_np(signal)) {
        CHECK(signal_name(signal) == "SIG" + std::string(name));
        CHECK(signal_number("SIG" + std::string(name)) == signal);
        ++named;
      } else {
        CHECK(signal_name(signal) == "signal " + std::to_string(signal));
      }
    }
    CHECK(named == 31);
  }

  TEST_CASE("what names no signal has no number") {
    for (const char* name : {"", "SIG", "TERM", "SIGNONE", "sigterm", "signal 99"}) {
      CHECK(signal_number(name) == std::nullopt);
    }
  }

  TEST_CASE("an end in words") {
    CHECK(to_string({.exit_code = 9}) == "exited with code 9");
    CHECK(to_string({.signal = SIGSEGV}) == "was killed by SIGSEGV");
    CHECK(to_string({.signal = SIGABRT, .core_dumped = true}) ==
          "was killed by SIGABRT (core dumped)");
  }
}
