// SPDX-License-Identifier: BSD-3-Clause
//
// The signals that come to the agent: those that end the run, and those that only go on to the
// workers.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <vector>

namespace ddprun::agent {

// Threads: used from the executor's only thread.  Lifetime: close() before the destructor.
class OutsideSignals {
 public:
  using OnSignal = std::function<void(int signal)>;

  OutsideSignals(boost::asio::any_io_executor executor, OnSignal on_stop, OnSignal on_forward);

  // Catches them from now on.  `nohup ddprun ...` ignores SIGHUP for the agent and the workers, and
  // it stays so.
  void catch_all(const std::vector<int>& stop_signals, const std::vector<int>& forward_signals);

  // Passes no more signals on.
  void stop_forwarding() { forward_.cancel(); }

  void close() { stop_.cancel(); }

 private:
  void wait_for(boost::asio::signal_set& signals, const OnSignal& on_signal);

  OnSignal on_stop_;
  OnSignal on_forward_;
  boost::asio::signal_set stop_;
  boost::asio::signal_set forward_;
};

}  // namespace ddprun::agent
