// SPDX-License-Identifier: BSD-3-Clause
//
// Shows what the workers do when a person asks for it (`ddpctl stacks`).  The workers go on; a
// collector holds each for as long as it needs, and for kLimit at most.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <set>
#include <string>

#include "agent/stack_reader.h"
#include "agent/workers.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/stacks.h"
#include "store/base/time.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// What was seen, as it is said.
rendezvous::NodeStacks stacks_of(std::uint64_t number, const SeenWorkers& seen);

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the thread for the disk and the workers.  stop() must have
// completed before the destructor runs.
class StackShow {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(5);

  // `say` gets the text of a rendezvous::NodeStacks.
  StackShow(boost::asio::any_io_executor executor, process::Reaper& reaper, process::IoThread& disk,
            StackReaderConfig config, Workers& workers, std::function<void(std::string)> say);

  // Looks, unless it does already; then that request gets no answer.
  void begin(const rendezvous::command::TakeStacks& take);

  // Ends it without an answer.  Returns the pids of the tools that are just ending, which a sweep
  // leaves alone.
  std::set<pid_t> interrupt() { return stacks_.interrupt(); }

  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> look(rendezvous::command::TakeStacks take);

  std::function<void(std::string)> say_;
  StackReader stacks_;
  bool is_looking_ = false;
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
