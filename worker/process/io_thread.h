// SPDX-License-Identifier: BSD-3-Clause
//
// One thread for calls that may wait for a disk, or for a reader that stands still, so that the
// event loop never does, unless no thread can be made: then run() itself waits.  The calls run one
// after the other, in the order in which they were given.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "store/base/time.h"

namespace ddprun::process {

// Threads: used from the executor's only thread.  `work` runs on the thread that this class owns.
// Lifetime: the destructor waits for nothing.  It drops the calls that have not begun; the one that
// is running ends by itself, or with the process.
class IoThread {
 public:
  // A call that takes longer than this is a stall, and is reported.
  static constexpr std::chrono::seconds kStall{2};

  // A call that stands still, and later the same call when it has ended.
  struct Stall {
    std::string what;
    Duration lasted{};
    bool is_over = false;
    std::string failure;  // what it has thrown, such as std::bad_alloc; then it may not have lasted
  };

  IoThread(boost::asio::any_io_executor executor, std::function<void(const Stall&)> on_stall);
  ~IoThread();
  IoThread(const IoThread&) = delete;

  // Runs `work` on the thread, then `done`, where there is one, from the event loop.  `what` names
  // the call in a report of a stall: "write /logs/run/stdout.log".  The thread starts with the
  // first call.  A call that throws is reported as well, and has ended: `done` runs, so what `work`
  // was to set must say before it that it has failed.
  void run(std::string what, std::function<void()> work, std::function<void()> done = nullptr);

  // Starts the thread before there is a call, so that the first does not wait for it.
  void start_early();

  // The same as run() as a coroutine, which goes on when `work` has ended.  Cancelling the
  // coroutine ends the wait and not the call: what `work` refers to must be its own.
  boost::asio::awaitable<void> run_and_wait(std::string what, std::function<void()> work);

  // Whether all calls have ended.
  bool is_idle() const { return dones_.empty(); }

  // Waits until all calls have ended, at the latest until `deadline`.  Returns is_idle().
  boost::asio::awaitable<bool> settled(MonoTime deadline);

  // The call that stands still now, if one does.
  std::optional<Stall> stall() const;

 private:
  struct Shared;
  static void serve(const std::shared_ptr<Shared>& shared);
  bool start();
  void ended(const std::string& what, Duration lasted, const std::string& failure);
  void watch();

  boost::asio::any_io_executor executor_;
  std::function<void(const Stall&)> on_stall_;
  std::shared_ptr<Shared> shared_;
  boost::asio::steady_timer watch_timer_;
  boost::asio::steady_timer
      settled_;  // never expires by itself in settled(); cancelled by the last
  std::optional<boost::asio::executor_work_guard<boost::asio::any_io_executor>> work_;
  // Of the calls that have not ended, in their order.  The thread has none of them: what they hold
  // may be the event loop's, which it may outlive.
  std::deque<std::function<void()>> dones_;
  bool has_thread_ = false;
  bool is_watching_ = false;
  bool is_stall_told_ = false;  // of the call that runs now
};

}  // namespace ddprun::process
