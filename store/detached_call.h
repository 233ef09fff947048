// SPDX-License-Identifier: BSD-3-Clause
//
// Calls that block and cannot be ended, such as those that ask a daemon of this machine.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "store/async.h"
#include "store/base/signal_mask.h"
#include "store/event.h"

namespace ddprun::store {

// What has become of one call.
template <class T>
struct DetachedCall {
  std::mutex mutex;
  boost::asio::steady_timer* answered = nullptr;  // nullptr: nothing waits any more
  std::optional<Result<T>> result;
};

// Carries out `work` on a thread of its own, which the end of the program does not wait for: what
// `work` refers to must be its own.  Cancelling the coroutine ends the wait, not the call.  Fails
// with Errc::LimitExceeded where there can be no further thread, or `work` throws, and as `work`
// does.
template <class T>
Async<T> call_detached(boost::asio::any_io_executor executor, std::function<Result<T>()> work) {
  boost::asio::steady_timer answered(executor, MonoTime::max());
  auto call = std::make_shared<DetachedCall<T>>();
  call->answered = &answered;
  struct Forgotten {
    DetachedCall<T>& call;
    ~Forgotten() {
      std::lock_guard lock(call.mutex);
      call.answered = nullptr;
    }
  } forgotten{*call};
  auto run = [call, work = std::move(work)] {
    Result<T> result = Error{Errc::LimitExceeded, ""};
    try {
      result = work();
    } catch (const std::exception& error) {  // std::bad_alloc
      result = Error{Errc::LimitExceeded, error.what()};
    }
    std::lock_guard lock(call->mutex);
    call->result = std::move(result);
    // The event loop lives while something waits: it is posted to under the lock.
    if (call->answered == nullptr) return;
    boost::asio::post(call->answered->get_executor(), [call] {
      if (call->answered != nullptr) call->answered->cancel();
    });
  };
  bool has_begun = true;
  try {
    SignalsBlocked blocked;
    std::thread(std::move(run)).detach();
  } catch (const std::system_error&) {  // a limit of the user's
    has_begun = false;
  }
  if (!has_begun) co_return Error{Errc::LimitExceeded, "no further thread can be started"};
  auto is_done = [&] {
    std::lock_guard lock(call->mutex);
    return call->result.has_value();
  };
  while (!is_done()) co_await wait_for(answered);
  co_return std::move(*call->result);
}

}  // namespace ddprun::store
