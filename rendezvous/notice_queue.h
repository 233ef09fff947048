// SPDX-License-Identifier: BSD-3-Clause
//
// The line from a rendezvous to its agent.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "rendezvous/handler.h"

namespace ddprun::rendezvous {

// Notices to the agent: each arrives in a later turn of the loop, and none after close().  What is
// said before the agent listens arrives once it does.
//
// Threads: used from the executor's only thread.
class NoticeQueue {
 public:
  explicit NoticeQueue(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  ~NoticeQueue() { close(); }
  NoticeQueue(const NoticeQueue&) = delete;
  NoticeQueue& operator=(const NoticeQueue&) = delete;

  void listen(Handler::Listener listener);
  void push(Notice notice);
  void close() { *is_open_ = false; }

 private:
  boost::asio::any_io_executor executor_;
  Handler::Listener listener_;
  std::vector<Notice> early_;                                     // before there was one
  std::shared_ptr<bool> is_open_ = std::make_shared<bool>(true);  // for notices under way
};

}  // namespace ddprun::rendezvous
