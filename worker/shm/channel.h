// SPDX-License-Identifier: BSD-3-Clause
//
// One rank's end of the shared segment.  It publishes this rank's progress, waits for the progress
// of its peers, and detects peers that have died, left or failed.
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

// Spin for some microseconds before sleeping, or sleep at once.  The background thread sleeps at
// once: it must not take the core away from the computation.
enum class WaitMode : std::uint8_t { Spin, Sleep };

// Threads: await() by one at a time; the others by any.
// Lifetime: call leave() before the destructor, or the peers wait for this rank in vain.
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

  // Sets this rank's counter, and wakes peers that sleep.
  void publish(Counter counter, std::uint64_t value);

  bool is_met(const Need& need, int root) const;

  // Whether `need` still waits for `peer`.
  bool lacks(const Need& need, int root, int peer) const;

  struct Wait {
    Need need;    // what to wait for
    Need wanted;  // what a peer must have published before it may leave
    int root = 0;
    std::uint64_t first = 0;  // the number of the collective's first chunk
    const Fingerprint* fingerprint = nullptr;
    Deadline deadline;
    std::chrono::milliseconds timeout{};  // what the deadline was made from, for the message
  };

  // Returns nullopt when `need` is met.  Otherwise returns an error sentence that names the rank
  // that has died, left, failed, aborted or missed the deadline.  Returns the error at once if a
  // peer has failed in this collective, so that no rank continues with a result that others do not
  // have.
  std::optional<std::string> await(const Wait& wait, WaitMode mode);

  // Fails the collective whose first chunk is `first` and all later ones: every await() ends with
  // `reason`, on this rank, on every rank that has not passed that collective, and wherever a need
  // is not met yet.  `reason` must name ranks by number, since other ranks print it.  Only the
  // first call counts.
  void fail(const std::string& reason, std::uint64_t first);

  // Tells the peers that this rank joins no further collective.
  void leave();

 private:
  Channel(std::unique_ptr<Segment> segment, int rank);

  template <class Visit>
  void for_each(Need::Of of, int root, Visit visit) const;
  std::optional<std::string> failure() const;
  std::optional<std::string> failure_since(std::uint64_t first) const;
  std::optional<std::string> obstacle(const Wait& wait) const;
  std::string timeout_sentence(const Wait& wait) const;
  void wake(int rank);

  std::unique_ptr<Segment> segment_;
  const int rank_;
  RankHeader& own_;
  std::vector<std::atomic<bool>> is_dead_;
  mutable std::mutex mutex_;
  std::string failure_;  // of this rank; under mutex_
  std::atomic<bool> has_failed_ = false;
  std::unique_ptr<DeathWatch> watch_;  // last: its thread uses the others
};

}  // namespace ddprun::ddp::shm
