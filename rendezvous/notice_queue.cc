// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/notice_queue.h"

#include <boost/asio/post.hpp>

namespace ddprun::rendezvous {

namespace asio = boost::asio;

void NoticeQueue::listen(Handler::Listener listener) {
  listener_ = std::move(listener);
  for (Notice& notice : std::exchange(early_, {})) push(std::move(notice));
}

void NoticeQueue::push(Notice notice) {
  asio::post(executor_, [this, is_open = is_open_, notice = std::move(notice)]() mutable {
    if (!*is_open) return;
    if (!listener_) return early_.push_back(std::move(notice));
    listener_(notice);
  });
}

}  // namespace ddprun::rendezvous
