// SPDX-License-Identifier: BSD-3-Clause
#include "agent/outside_signals.h"

#include <signal.h>

#include <utility>

namespace ddprun::agent {
namespace {

// (A shell script also ignores SIGINT for what it starts with '&'; that one is handled all the
// same, as torchrun does.)
bool is_protected_from(int signal) {
  struct sigaction current = {};
  return signal == SIGHUP && ::sigaction(signal, nullptr, &current) == 0 &&
         current.sa_handler == SIG_IGN;
}

}  // namespace

OutsideSignals::OutsideSignals(boost::asio::any_io_executor executor, OnSignal on_stop,
                               OnSignal on_forward)
    : on_stop_(std::move(on_stop)),
      on_forward_(std::move(on_forward)),
      stop_(executor),
      forward_(executor) {}

void OutsideSignals::catch_all(const std::vector<int>& stop_signals,
                               const std::vector<int>& forward_signals) {
  for (int signal : stop_signals) {
    if (!is_protected_from(signal)) stop_.add(signal);
  }
  for (int signal : forward_signals) forward_.add(signal);
  wait_for(stop_, on_stop_);
  wait_for(forward_, on_forward_);
}

void OutsideSignals::wait_for(boost::asio::signal_set& signals, const OnSignal& on_signal) {
  signals.async_wait([this, &signals, &on_signal](boost::system::error_code error, int signal) {
    if (error) return;
    on_signal(signal);
    wait_for(signals, on_signal);
  });
}

}  // namespace ddprun::agent
