// SPDX-License-Identifier: BSD-3-Clause
//
// What the shells of a rendezvous share: their clock, and the line to the agent.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "rendezvous/handler.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

// The time, once a turn.
Now read_clocks();

// Until the timer expires or is cancelled.
boost::asio::awaitable<void> wait(boost::asio::steady_timer& timer);

// Notices to the agent: each arrives in a later turn of the loop, and none after close().
//
// Threads: used from the executor's only thread.
class NoticeQueue {
 public:
  explicit NoticeQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  ~NoticeQueue() { close(); }
  NoticeQueue(const NoticeQueue&) = delete;
  NoticeQueue& operator=(const NoticeQueue&) = delete;

  void listen(Handler::Listener listener) { listener_ = std::move(listener); }
  void push(Notice notice);
  void close() { *is_open_ = false; }

 private:
  boost::asio::any_io_executor executor_;
  Handler::Listener listener_;
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // for notices under way
};

}  // namespace ddprun::rendezvous
