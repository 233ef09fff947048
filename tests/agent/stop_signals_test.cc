// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/stop_signals.h"

#include <doctest/doctest.h>

#include <csignal>

#include "rendezvous/decide/messages.h"

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

constexpr MonoTime kStart{1h};

}  // namespace

TEST_SUITE("agent/decide/stop_signals") {
  TEST_CASE("a signal that is sent twice at once is told once") {
    StopSignals signals;
    CHECK(signals.heard(SIGTERM, kStart, false).is_told);
    CHECK_FALSE(signals.heard(SIGTERM, kStart + 99ms, false).is_told);
    CHECK(signals.heard(SIGTERM, kStart + 100ms, false).is_told);
    CHECK(signals.heard(SIGINT, kStart + 101ms, false).is_told);
    CHECK(signals.late() == 0);
  }

  TEST_CASE("a node that only hosts leaves at the first, and waits for nobody at the next") {
    StopSignals signals;
    StopSignals::Effect effect = signals.heard(SIGTERM, kStart, true);
    CHECK(effect.leaves);
    CHECK_FALSE(effect.closes);
    // The same request.
    effect = signals.heard(SIGINT, kStart + 999ms, true);
    CHECK_FALSE(effect.leaves);
    CHECK_FALSE(effect.closes);
    CHECK(signals.heard(SIGINT, kStart + 1s, true).closes);
    CHECK(signals.late() == SIGINT);
  }

  TEST_CASE("who was asked before the end is asked again after it") {
    StopSignals signals;
    signals.heard(SIGTERM, kStart, false);
    StopSignals::Effect effect = signals.heard(SIGTERM, kStart + 5s, true);
    CHECK(effect.closes);
    CHECK_FALSE(effect.leaves);
  }

  TEST_CASE("the exit code is the signal's where the run has ended by it elsewhere") {
    constexpr int kEnded = rendezvous::command::kExitRendezvous;
    StopSignals signals;
    CHECK(signals.exit_code(kEnded, true) == kEnded);
    signals.heard(SIGTERM, kStart, true);
    CHECK(signals.exit_code(kEnded, true) == 128 + SIGTERM);
    CHECK(signals.exit_code(kEnded, false) == kEnded);
    CHECK(signals.exit_code(0, true) == 0);
  }
}
