// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/dropped_messages.h"

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

namespace ddprun::ddp {
namespace {

void wait_for(c10d::Work& work) {
  try {
    work.wait();
  } catch (const std::exception&) {
    // The group's next call meets it as well.
  }
}

}  // namespace

void DroppedMessages::take(c10::intrusive_ptr<c10d::Work> work, std::function<void()> kept) {
  std::unique_lock lock(mutex_);
  if (is_ending_) return;
  messages_.push_back({.work = std::move(work), .kept = std::move(kept)});
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_one();
}

void DroppedMessages::end(bool waits) {
  {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    if (!waits && !messages_.empty()) {
      is_cancelled_ = true;
      messages_.front().work->abort();
    }
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void DroppedMessages::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !messages_.empty(); });
    if (messages_.empty() || is_cancelled_) return;
    const c10::intrusive_ptr<c10d::Work> work = messages_.front().work;
    lock.unlock();
    wait_for(*work);
    lock.lock();
    const Message done = std::move(messages_.front());
    messages_.pop_front();
  }
}

}  // namespace ddprun::ddp
