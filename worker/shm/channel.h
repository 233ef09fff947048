// SPDX-License-Identifier: BSD-3-Clause
//
// One rank's end of the shared segment: it tells its peers how far it has come, sleeps until they
// have come as far as it needs, and learns when one of them never will.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/shm/death_watch.h"
#include "worker/shm/decide/plan.h"
#include "worker/shm/futex.h"
#include "worker/shm/segment.h"

namespace ddprun::ddp::shm {

// How long to look for the peers before sleeping.  Who works in the background beside the
// computation must not take its core away, and sleeps at once.
enum class Patience : std::uint8_t { Look, Sleep };

// Threads: await() by one at a time; the others by any.
// Lifetime: leave() before the destructor, or the peers take this rank for one that never comes.
class Channel {
 public:
  // `pids` of all ranks, this one's included.
  static Result<std::unique_ptr<Channel>> open(std::unique_ptr<Segment> segment, int rank,
                                               const std::vector<int>& pids);

  int rank() const { return rank_; }
  int ranks() const { return segment_->layout().ranks; }
  const Segment& segment() const { return *segment_; }
  const Layout& layout() const { return segment_->layout(); }

  std::uint64_t seen(int rank, Counter counter) const;

  // Counts for this rank, and wakes the peers that sleep.
  void publish(Counter counter, std::uint64_t value);

  bool is_met(const Need& need, int root) const;

  // Whether `peer` is among those who still have to come so far.
  bool lacks(const Need& need, int root, int peer) const;

  struct Wait {
    Need need;    // until when to wait
    Need wanted;  // what a peer must have given before it may leave
    int root = 0;
    std::uint64_t first = 0;  // the number of the collective's first chunk
    const Call* call = nullptr;
    Deadline deadline;
    std::chrono::milliseconds timeout{};  // what the deadline was made from, for the message
  };

  // Returns when `need` is met; else a sentence that says who is in the way: a rank that has died,
  // left or failed, that did not come before the deadline, or an abort.  It does so at once where a
  // peer has given this collective up, so that nobody goes on with what the others do not have.
  std::optional<std::string> await(const Wait& wait, Patience patience);

  // Gives up the collective whose first chunk is `first`, and all after it: makes every await() end
  // with `reason`, here, on every rank that is not past that collective, and wherever a need is not
  // met by then.  A sentence that names ranks by number, since others will show it.  The first
  // counts.
  void fail(const std::string& reason, std::uint64_t first);

  // Says that this rank takes part no more.
  void leave();

 private:
  Channel(std::unique_ptr<Segment> segment, int rank);

  template <class Visit>
  void for_each(Need::Of of, int root, Visit visit) const;
  std::optional<std::string> failure() const;
  std::optional<std::string> given_up(std::uint64_t first) const;
  std::optional<std::string> obstacle(const Wait& wait) const;
  std::string late(const Wait& wait) const;
  void ring(int rank);

  std::unique_ptr<Segment> segment_;
  const int rank_;
  RankWords& own_;
  std::vector<std::atomic<bool>> is_dead_;
  mutable std::mutex mutex_;
  std::string failure_;  // of this rank; under mutex_
  std::atomic<bool> has_failed_ = false;
  std::unique_ptr<DeathWatch> watch_;  // last: its thread uses the others
};

}  // namespace ddprun::ddp::shm
