// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/channel.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "worker/shm/decide/format.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ddprun::ddp::shm {
namespace {

using std::chrono::steady_clock;

// Long enough to catch a peer that is nearly there, short compared to any computation.  The loop
// yields: the peer may be scheduled on this core, and then spinning only delays it.
constexpr std::chrono::microseconds kSpinTime{30};

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

std::string reason_of(const RankHeader& header) {
  return std::string(header.reason, ::strnlen(header.reason, sizeof header.reason));
}

// Spins until `is_met`; false if it is not met soon.
template <class Condition>
bool spin_until(Condition is_met) {
  const auto begin = steady_clock::now();
  while (true) {
    for (int i = 0; i < 16; ++i) {
      if (is_met()) return true;
      pause_core();
    }
    if (steady_clock::now() - begin > kSpinTime) return false;
    ::sched_yield();
  }
}

}  // namespace

Channel::Channel(std::unique_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)),
      rank_(rank),
      own_(segment_->rank_header(rank)),
      is_dead_(static_cast<std::size_t>(segment_->layout().ranks)) {}

Result<std::unique_ptr<Channel>> Channel::open(std::unique_ptr<Segment> segment, int rank,
                                               const std::vector<int>& pids) {
  std::unique_ptr<Channel> channel(new Channel(std::move(segment), rank));
  auto on_death = [channel = channel.get()](int dead) {
    channel->is_dead_[static_cast<std::size_t>(dead)].store(true);
    channel->wake(channel->rank_);
  };
  Result<std::unique_ptr<DeathWatch>> watch = DeathWatch::start(pids, on_death);
  if (!watch) return watch.error();
  channel->watch_ = std::move(*watch);
  return channel;
}

std::uint64_t Channel::seen(int rank, Counter counter) const {
  return segment_->rank_header(rank).counters[static_cast<int>(counter)].load(
      std::memory_order_acquire);
}

void Channel::wake(int rank) {
  std::atomic<std::uint32_t>& futex_word = segment_->rank_header(rank).futex_word;
  futex_word.fetch_add(1);
  futex_wake(futex_word);
}

// This fence pairs with the one in await(): either this rank sees the sleeper, or the sleeper sees
// the new counter.
void Channel::publish(Counter counter, std::uint64_t value) {
  own_.counters[static_cast<int>(counter)].store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    if (segment_->rank_header(peer).is_asleep.load(std::memory_order_relaxed) != 0) wake(peer);
  }
}

template <class Visit>
void Channel::for_each(Need::Of of, int root, Visit visit) const {
  if (of == Need::Of::None) return;
  if (of == Need::Of::Root) return visit(root);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer != rank_) visit(peer);
  }
}

bool Channel::lacks(const Need& need, int root, int peer) const {
  const bool is_asked = need.of == Need::Of::Peers || (need.of == Need::Of::Root && peer == root);
  return is_asked && seen(peer, need.counter) < need.value;
}

bool Channel::is_met(const Need& need, int root) const {
  bool all = true;
  for_each(need.of, root, [&](int peer) { all = all && seen(peer, need.counter) >= need.value; });
  return all;
}

std::optional<std::string> Channel::failure() const {
  if (!has_failed_.load()) return std::nullopt;
  std::lock_guard lock(mutex_);
  return failure_;
}

// Why a rank has failed in the collective that begins with `first`, or before it, even if this rank
// already has all that it needs from that collective.
std::optional<std::string> Channel::failure_since(std::uint64_t first) const {
  if (auto own = failure()) return own;
  for (int peer = 0; peer < ranks(); ++peer) {
    const RankHeader& header = segment_->rank_header(peer);
    if (header.state.load() == RankState::Failed && header.failed_at.load() <= first) {
      return reason_of(header);
    }
  }
  return std::nullopt;
}

// A rank that has died or failed joins no further collective; any rank that still waits gets an
// error. A rank that has left published its data first; it is an error only if that is not enough.
std::optional<std::string> Channel::obstacle(const Wait& wait) const {
  if (auto own = failure()) return own;
  std::optional<std::string> reason;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const RankHeader& header = segment_->rank_header(peer);
    const bool is_dead = is_dead_[static_cast<std::size_t>(peer)].load();
    const RankState state = header.state.load();
    const std::string name = "rank " + std::to_string(peer) + " of " + std::to_string(ranks());
    if (state == RankState::Running && is_dead) {
      return name + " has died while others wait for it in " + describe(*wait.fingerprint);
    }
    if (state == RankState::Failed) {
      reason = reason_of(header);
    } else if (state == RankState::Left &&
               (lacks(wait.need, wait.root, peer) || lacks(wait.wanted, wait.root, peer))) {
      reason = name + " has left while others wait for it in " + describe(*wait.fingerprint);
    }
  }
  return reason;
}

std::string Channel::timeout_sentence(const Wait& wait) const {
  std::vector<int> missing;
  for_each(wait.need.of, wait.root, [&](int peer) {
    if (seen(peer, wait.need.counter) < wait.need.value) missing.push_back(peer);
  });
  return format_ranks(missing) + " of " + std::to_string(ranks()) + " did not come to " +
         describe(*wait.fingerprint) + " within " + format_seconds(wait.timeout);
}

// The peer's state is read before its counter is read again: what it published before it ended
// counts.
std::optional<std::string> Channel::await(const Wait& wait, WaitMode mode) {
  auto is_ready = [&] { return is_met(wait.need, wait.root); };
  if (auto reason = failure_since(wait.first)) return reason;
  if (is_ready()) return std::nullopt;
  if (mode == WaitMode::Spin && spin_until(is_ready)) return std::nullopt;
  while (true) {
    own_.is_asleep.store(1);
    const std::uint32_t futex_word = own_.futex_word.load();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool is_done = is_ready();
    std::optional<std::string> problem;
    if (!is_done) problem = obstacle(wait);
    if (problem && is_ready()) continue;
    if (!is_done && !problem && steady_clock::now() >= wait.deadline)
      problem = timeout_sentence(wait);
    if (!is_done && !problem) futex_wait(own_.futex_word, futex_word, wait.deadline);
    own_.is_asleep.store(0);
    if (is_done) return std::nullopt;
    if (problem) return problem;
  }
}

void Channel::fail(const std::string& reason, std::uint64_t first) {
  {
    std::lock_guard lock(mutex_);
    if (has_failed_.load()) return;
    failure_ = reason;
    const std::size_t length = std::min(reason.size(), sizeof own_.reason - 1);
    std::memcpy(own_.reason, reason.data(), length);
    own_.reason[length] = '\0';
    own_.failed_at.store(first);
    own_.state.store(RankState::Failed);
    has_failed_.store(true);
  }
  for (int rank = 0; rank < ranks(); ++rank) wake(rank);
}

void Channel::leave() {
  std::lock_guard lock(mutex_);
  if (!has_failed_.load()) own_.state.store(RankState::Left);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer != rank_) wake(peer);
  }
}

}  // namespace ddprun::ddp::shm
