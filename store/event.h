// SPDX-License-Identifier: BSD-3-Clause
//
// How one coroutine waits for another.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "store/base/time.h"

namespace ddprun::store {

// A condition variable for coroutines.  It holds no state: a wait ends at the next notify(), so the
// condition is checked in a loop around the wait.
//
//   while (queue.empty()) co_await has_items.wait();
//
// Cancelling the waiting coroutine also ends a wait; the coroutine's next suspension then throws.
//
// Threads: used from the executor's thread only.  Lifetime: must outlive its waits.
class Event {
 public:
  explicit Event(boost::asio::any_io_executor executor);

  boost::asio::awaitable<void> wait();
  // Ends at `deadline` at the latest.
  boost::asio::awaitable<void> wait_until(MonoTime deadline);

  // Ends each wait that has begun.  The coroutines go on in a later turn of the loop.
  void notify() { timer_.cancel(); }

 private:
  boost::asio::steady_timer timer_;  // never expires
};

// Completes when the timer expires or is cancelled.  Cancelling the coroutine also ends the wait.
boost::asio::awaitable<void> wait_for(boost::asio::steady_timer& timer);

}  // namespace ddprun::store
