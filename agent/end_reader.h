// SPDX-License-Identifier: BSD-3-Clause
//
// The ends of workers of which something is still to be read from the disk.  A failure is told with
// all that the worker has left, unless the disk stands still for long; where the workers are to
// end, that is waited for a moment only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>

#include "agent/decide/worker_exit.h"
#include "store/base/time.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

// Puts into an exit what the worker has left on the disk.
using ReadEnd = std::function<void(WorkerExit&)>;

// Threads: used from the executor's only thread.
// Lifetime: borrows the thread for the disk.  After destruction no end is told.
class EndReader {
 public:
  // How long an end is held back while the workers are to end, and otherwise: the others wait for
  // the one that has failed, and would for ever.
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  static constexpr Duration kLongPatience = std::chrono::seconds(15);

  EndReader(boost::asio::any_io_executor executor, process::IoThread& disk,
            std::function<void(WorkerExit)> tell);
  ~EndReader();

  // Tells `exit` when `read_end` has been run on it; at once what has succeeded, or has nothing to
  // be read (nullptr).
  void ended(WorkerExit exit, ReadEnd read_end);

  // The workers are to end: what is held back is told soon, also without what the disk has.
  void hurry();

  // What is held back is told now, without what the disk has.
  void tell_held();

  // Workers are started, and nothing is left to be told of those before.
  void begin_attempt();

 private:
  struct Held;
  void arm(const std::shared_ptr<Held>& held, Duration patience);
  void release(const std::shared_ptr<Held>& held, WorkerExit exit);

  boost::asio::any_io_executor executor_;
  process::IoThread& disk_;
  std::function<void(WorkerExit)> tell_;
  bool is_hurried_ = false;
  std::list<std::shared_ptr<Held>> held_;
};

}  // namespace ddprun::agent
