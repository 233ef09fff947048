// SPDX-License-Identifier: BSD-3-Clause
//
// The owner of coroutines.  No coroutine is detached: the code that starts one spawns it
// into a TaskGroup, and so can cancel it, wait for it, and be sure that it is gone.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <functional>
#include <list>

#include "store/event.h"

namespace ddprun::store {

// Throws `error` on, which leaves the event loop: nothing of ours throws, so it is a bug.
[[noreturn]] void rethrow(std::exception_ptr error);

// A set of running coroutines.
//
// Threads: used from the executor's thread only; the executor must not run on more than one.
// Lifetime: join() must have completed (empty() is true) before the destructor runs, and what the
// tasks refer to must live until then.
class TaskGroup {
 public:
  using ErrorHandler = std::function<void(std::exception_ptr)>;

  // `on_error` is called with every exception that leaves a task, except of operation_aborted: a
  // cancelled task is an outcome, not a failure.
  explicit TaskGroup(boost::asio::any_io_executor executor, ErrorHandler on_error = rethrow);
  ~TaskGroup();

  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Starts `task` on the executor; it is the group's until it ends.
  void spawn(boost::asio::awaitable<void> task);

  // Asks every task that is running now to end at its next suspension point.  Tasks spawned later
  // are not concerned.
  void cancel();

  // Completes when no task is left.  A task must not join its own group.
  boost::asio::awaitable<void> join();

  bool empty() const { return tasks_.empty(); }

 private:
  using Tasks = std::list<boost::asio::cancellation_signal>;

  void finished(Tasks::iterator task, std::exception_ptr error);

  boost::asio::any_io_executor executor_;
  ErrorHandler on_error_;
  Tasks tasks_;
  Event emptied_;  // the last task has ended
};

}  // namespace ddprun::store
