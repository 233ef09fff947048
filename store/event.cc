// SPDX-License-Identifier: BSD-3-Clause
#include "store/event.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace ddprun::store {
namespace asio = boost::asio;
using namespace asio::experimental::awaitable_operators;

Event::Event(asio::any_io_executor executor) : timer_(std::move(executor), MonoTime::max()) {}

asio::awaitable<void> Event::wait() {
  return wait_for(timer_);
}

asio::awaitable<void> Event::wait_until(MonoTime deadline) {
  asio::steady_timer limit(timer_.get_executor(), deadline);
  co_await (wait() || wait_for(limit));
}

asio::awaitable<void> wait_for(asio::steady_timer& timer) {
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

}  // namespace ddprun::store
