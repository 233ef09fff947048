// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/io_thread.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "store/base/signal_mask.h"

namespace ddprun::process {
namespace {

namespace asio = boost::asio;

MonoTime mono_now() {
  return std::chrono::steady_clock::now();
}

// What `work` throws, such as std::bad_alloc, must not end the agent; "" for nothing.
std::string failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return std::string("it has thrown ") + error.what();
  }
  return "";
}

}  // namespace

// What the thread and the event loop share.  The thread keeps it alive for as long as it runs.
struct IoThread::Shared {
  struct Call {
    std::string what;
    std::function<void()> work;
  };
  std::mutex mutex;
  std::condition_variable news;
  std::deque<Call> calls;
  std::string what;  // of the call that runs; empty for none
  MonoTime began{};
  IoThread* owner = nullptr;  // nullptr: gone; the thread ends
};

IoThread::IoThread(asio::any_io_executor executor, std::function<void(const Stall&)> on_stall)
    : executor_(executor),
      on_stall_(std::move(on_stall)),
      shared_(std::make_shared<Shared>()),
      watch_timer_(executor),
      settled_(executor) {
  shared_->owner = this;
}

IoThread::~IoThread() {
  std::deque<Shared::Call> dropped;  // destroyed without the lock
  {
    std::lock_guard lock(shared_->mutex);
    shared_->owner = nullptr;
    dropped.swap(shared_->calls);
  }
  shared_->news.notify_one();
}

void IoThread::run(std::string what, std::function<void()> work, std::function<void()> done) {
  if (!has_thread_ && !start()) {
    std::string failure = failure_of(work);
    if (!failure.empty()) on_stall_({.what = what, .is_over = true, .failure = failure});
    if (done) asio::post(executor_, std::move(done));
    return;
  }
  dones_.push_back(std::move(done));
  if (dones_.size() == 1) work_.emplace(executor_);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->calls.push_back({std::move(what), std::move(work)});
  }
  shared_->news.notify_one();
  if (!is_watching_) watch();
}

void IoThread::start_early() {
  if (!has_thread_) start();
}

asio::awaitable<void> IoThread::run_and_wait(std::string what, std::function<void()> work) {
  struct Wait {
    asio::steady_timer timer;  // never expires
    bool is_over = false;
  };
  auto wait = std::make_shared<Wait>(Wait{asio::steady_timer(executor_, MonoTime::max())});
  run(std::move(what), std::move(work), [wait] {
    wait->is_over = true;
    wait->timer.cancel();
  });
  while (!wait->is_over) co_await wait->timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

// The thread handles no signal: they are the event loop's.  Where no thread can be made (a limit of
// the user's), a call waits where it is made.
bool IoThread::start() {
  try {
    SignalsBlocked blocked;
    std::thread([shared = shared_] { serve(shared); }).detach();
    has_thread_ = true;
  } catch (const std::system_error&) {
    has_thread_ = false;
  }
  return has_thread_;
}

void IoThread::serve(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->news.wait(lock, [&] { return !shared->calls.empty() || shared->owner == nullptr; });
    if (shared->owner == nullptr) return;
    Shared::Call call = std::move(shared->calls.front());
    shared->calls.pop_front();
    shared->what = call.what;
    shared->began = mono_now();
    lock.unlock();
    std::string failure = failure_of(call.work);
    call.work = nullptr;
    lock.lock();
    shared->what.clear();
    Duration lasted = mono_now() - shared->began;
    // The event loop lives while its owner does: it is posted to under the lock.
    if (shared->owner == nullptr) return;
    asio::post(shared->owner->executor_,
               [shared, lasted, what = std::move(call.what), failure = std::move(failure)] {
                 if (IoThread* owner = shared->owner) owner->ended(what, lasted, failure);
               });
  }
}

void IoThread::ended(const std::string& what, Duration lasted, const std::string& failure) {
  std::function<void()> done = std::move(dones_.front());
  dones_.pop_front();
  bool is_told = std::exchange(is_stall_told_, false);
  if (is_told || !failure.empty())
    on_stall_({.what = what, .lasted = lasted, .is_over = true, .failure = failure});
  if (is_idle()) {
    watch_timer_.cancel();
    settled_.cancel();
  }
  if (done) done();
  if (is_idle()) work_.reset();
}

std::optional<IoThread::Stall> IoThread::stall() const {
  std::lock_guard lock(shared_->mutex);
  Duration lasted = mono_now() - shared_->began;
  if (shared_->what.empty() || lasted < kStall) return std::nullopt;
  return Stall{.what = shared_->what, .lasted = lasted, .is_over = false, .failure = ""};
}

// Looks while calls are under way, and not at each of them: most end at once.
void IoThread::watch() {
  is_watching_ = true;
  watch_timer_.expires_after(kStall / 2);
  watch_timer_.async_wait([this, shared = shared_](boost::system::error_code) {
    if (shared->owner == nullptr) return;
    is_watching_ = false;
    if (is_idle()) return;
    auto stalled = is_stall_told_ ? std::nullopt : stall();
    if (stalled) {
      is_stall_told_ = true;
      on_stall_(*stalled);
    }
    watch();
  });
}

asio::awaitable<bool> IoThread::settled(MonoTime deadline) {
  while (!is_idle() && mono_now() < deadline) {
    settled_.expires_at(deadline);
    co_await settled_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return is_idle();
}

}  // namespace ddprun::process
