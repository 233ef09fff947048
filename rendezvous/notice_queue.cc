// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/notice_queue.h"

#include <boost/asio/post.hpp>

namespace ddprun::rendezvous {

namespace asio = boost::asio;

void NoticeQueue::push(Notice notice) {
  asio::post(executor_, [this, is_open = is_open_, notice = std::move(notice)] {
    if (*is_open) listener_(notice);
  });
}

}  // namespace ddprun::rendezvous
