// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/notice_queue.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace ddprun::rendezvous {

namespace asio = boost::asio;

Now read_clocks() {
  return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()};
}

asio::awaitable<void> wait(asio::steady_timer& timer) {
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

void NoticeQueue::push(Notice notice) {
  asio::post(executor_, [this, is_open = is_open_, notice = std::move(notice)] {
    if (*is_open) listener_(notice);
  });
}

}  // namespace ddprun::rendezvous
