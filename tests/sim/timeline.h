// SPDX-License-Identifier: BSD-3-Clause
//
// Simulated time, what is due in it, and the processes that it happens to.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::sim {

using Deed = std::function<void()>;

// Something that can be killed, or stopped and continued.  While it is frozen, what would happen to
// it piles up, and then happens all at once.  A resource: known by its address.
struct Process {
  std::string name;
  int machine = 0;
  bool is_alive = true;
  bool is_frozen = false;
  Duration thawed_at{};  // the last time
  std::deque<Deed> backlog;
};

class Timeline {
 public:
  Duration now() const { return now_; }

  // Does `deed` at this time; of two at one time the one that was asked for first.
  void at(Duration due, Deed deed) {
    due = due < now_ ? now_ : due;
    queue_.push({due, count_++, std::move(deed)});
  }
  void after(Duration delay, Deed deed) { at(now_ + delay, std::move(deed)); }

  // The same for something that happens to a process: never, once that is dead; later, where it is
  // frozen.
  void to(Process& process, Duration delay, Deed deed) {
    after(delay, [&process, deed = std::move(deed)]() mutable {
      if (!process.is_alive) return;
      if (process.is_frozen) {
        process.backlog.push_back(std::move(deed));
      } else {
        deed();
      }
    });
  }
  static void freeze(Process& process) { process.is_frozen = true; }
  void thaw(Process& process) {
    if (!process.is_frozen) return;
    process.is_frozen = false;
    process.thawed_at = now_;
    auto backlog = std::exchange(process.backlog, {});
    for (Deed& deed : backlog) to(process, Duration::zero(), std::move(deed));
  }

  // The next deed, unless there is none or it is due after `limit`.
  bool run_one(Duration limit) {
    if (queue_.empty() || queue_.top().due > limit) return false;
    Entry entry = std::move(const_cast<Entry&>(queue_.top()));
    queue_.pop();
    steps_at_once_ = entry.due > now_ ? 1 : steps_at_once_ + 1;
    now_ = entry.due;
    ++steps_;
    entry.deed();
    return true;
  }
  std::uint64_t steps() const { return steps_; }
  // At the present moment: who is busy for ever lets no time pass.
  std::uint64_t steps_at_once() const { return steps_at_once_; }

 private:
  struct Entry {
    Duration due;
    std::uint64_t number;
    Deed deed;
    bool operator<(const Entry& other) const {
      return std::pair(due, number) > std::pair(other.due, other.number);
    }
  };
  Duration now_{};
  std::uint64_t count_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t steps_at_once_ = 0;
  std::priority_queue<Entry> queue_;
};

}  // namespace ddprun::sim
