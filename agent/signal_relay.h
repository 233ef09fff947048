// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a signal that has come to the agent went to its workers, too, so that it need not be
// passed on.  A scheduler sends a signal to the agent alone at most sites, and to every process at
// some; what a person sends goes to the agent alone.  The guardian has a session of its own, as the
// workers have, so it gets the signals that they get, and reports them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "store/base/fd.h"
#include "store/event.h"
#include "worker/process/guardian.h"

namespace ddprun::agent {

// Threads: used from the executor's thread only.  Lifetime: stop() before the destructor, with no
// reached_workers() under way.
class SignalRelay {
 public:
  // How long a report is waited for.  A scheduler signals the processes one after the other, in
  // less than a millisecond; a busy machine takes longer.  A signal to stop must not be late:
  // SIGKILL may follow soon.
  static constexpr auto kPatience = std::chrono::milliseconds(250);
  static constexpr auto kPatienceOfStop = std::chrono::milliseconds(20);

  // `reports` is the guardian's; nullptr where only the agent is signalled.  `sender` is the
  // scheduler's program that sends signals.  `is_to_all`: the scheduler is known to signal every
  // process, so that a report is on its way, however late.
  SignalRelay(boost::asio::any_io_executor executor, std::shared_ptr<Fd> reports,
              std::string sender, bool is_to_all);

  // Waits for the guardian's report of `signal`, which the agent has just got.  Where it is not
  // known that every process is signalled, and a report has failed to come, there is no waiting any
  // more until one comes late.
  boost::asio::awaitable<bool> reached_workers(int signal, std::chrono::milliseconds patience);

  void stop();

 private:
  void read();
  void heard(const process::SignalReport& report);

  boost::asio::posix::stream_descriptor reports_;
  process::SignalReport next_;
  std::map<int, int> heard_;   // by signal: reports that have not been asked for yet
  std::map<int, int> missed_;  // by signal: questions answered with no for want of a report
  std::string sender_;
  bool is_to_all_;
  bool is_alone_ = false;  // as far as is known, only the agent is signalled
  store::Event news_;      // something was heard
};

}  // namespace ddprun::agent
