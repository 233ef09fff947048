// SPDX-License-Identifier: BSD-3-Clause
//
// Gives the workers a signal that the agent has received or wants to send, unless the scheduler has
// sent it to them itself.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>

#include "agent/decide/config.h"
#include "agent/signal_relay.h"
#include "agent/stop_reason_file.h"
#include "agent/workers.h"
#include "store/task_group.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the workers, the stop file and the tasks, which run the waits.
class WorkerSignals {
 public:
  struct Parts {
    Workers& workers;
    StopReasonFile& stop_file;
    store::TaskGroup& tasks;
    std::shared_ptr<spdlog::logger> logger;
  };
  WorkerSignals(const boost::asio::any_io_executor& executor, const AgentConfig& config,
                Parts parts);

  // To the workers themselves, not to their process groups: what they have started need not know
  // the signal, and would die of it.  `running`: how many of them run by then, for the log.
  void forward(int signal, std::function<int()> running);

  // How the workers are told to stop.
  struct Stop {
    int signal = 0;
    bool is_from_outside = false;  // the workers may have been sent it
    // SIGCONT after it, as systemd sends, so that those that somebody has stopped hear it.
    bool continues = true;
  };
  // To their process groups, once the stop file says why.  Where this takes time, `is_wanted` says
  // at its end whether the signal still is.
  void stop(const Stop& wanted, std::function<bool()> is_wanted);

  // Ends all waits for the scheduler's signals.
  void close() { relay_.stop(); }

 private:
  boost::asio::awaitable<void> forward_unless_sent(int signal, std::function<int()> running);
  boost::asio::awaitable<void> stop_unless_sent(Stop wanted, bool may_have_it,
                                                std::function<bool()> is_wanted);
  void send(const Stop& wanted, bool have_it) const;

  Parts parts_;
  bool has_reports_;            // of the signals that the scheduler sends
  std::string scheduler_name_;  // empty for none
  SignalRelay relay_;
};

}  // namespace ddprun::agent
