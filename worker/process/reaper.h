// SPDX-License-Identifier: BSD-3-Clause
//
// Waits for workers: tells when one has ended, at the moment it ends (its pidfd becomes readable,
// nothing is polled).  Only spawn and Guardian wait for children of their own beside it.  It
// collects strangers, the orphaned descendants of workers that the kernel hands to this process
// because it is their subreaper, or pid 1.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>

#include "store/base/exit_status.h"
#include "store/base/time.h"
#include "worker/process/spawn.h"

namespace ddprun::process {

// Threads: used from the executor's only thread.
// Lifetime: after destruction no callback runs any more; the processes go on.
class Reaper {
 public:
  explicit Reaper(boost::asio::any_io_executor executor);
  ~Reaper();
  Reaper(const Reaper&) = delete;

  // Makes this process the subreaper of its descendants.  Fails with the system's code.
  static Result<void> become_subreaper();

  // Calls `on_exit` once, from the event loop, when `process` has ended; its pid is free for reuse
  // by then.  Where a debugger is attached to it, that is when the debugger has let go.
  void watch(Process process, std::function<void(ExitStatus)> on_exit);

  // Completes when `process` has ended, or at `limit` with nullopt; it is collected in either case.
  // Cancelling the coroutine ends the wait.
  boost::asio::awaitable<std::optional<ExitStatus>> ended(Process process,
                                                          MonoTime limit = MonoTime::max());

  // Calls `on_change` after each SIGCHLD, when strangers have been collected.  One listener;
  // nullptr for none.
  void listen(std::function<void()> on_change) { on_change_ = std::move(on_change); }

  // Collects every stranger that has ended.
  void reap_strangers();

 private:
  struct Watched;
  void collect(std::list<Watched>::iterator watched);
  void wait_for_sigchld();

  boost::asio::any_io_executor executor_;
  boost::asio::signal_set sigchld_;
  std::list<Watched> watched_;
  std::function<void()> on_change_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // handlers outlive us by one turn
};

}  // namespace ddprun::process
