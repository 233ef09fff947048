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

// Long enough to meet a peer that is on its way without sleeping, short beside any computation. The
// core is offered to others all the while: the scheduler may have put the peer on the same one, and
// then a spin only keeps it from coming.
constexpr std::chrono::microseconds kYield{30};

void pause_core() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

std::string reason_of(const RankWords& words) {
  return std::string(words.reason, ::strnlen(words.reason, sizeof words.reason));
}

// Whether `is_met` before it is worth sleeping.
template <class Claim>
bool looked_for(Claim is_met) {
  const auto begin = steady_clock::now();
  while (true) {
    for (int i = 0; i < 16; ++i) {
      if (is_met()) return true;
      pause_core();
    }
    if (steady_clock::now() - begin > kYield) return false;
    ::sched_yield();
  }
}

}  // namespace

Channel::Channel(std::unique_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)),
      rank_(rank),
      own_(segment_->words(rank)),
      is_dead_(static_cast<std::size_t>(segment_->layout().ranks)) {}

Result<std::unique_ptr<Channel>> Channel::open(std::unique_ptr<Segment> segment, int rank,
                                               const std::vector<int>& pids) {
  std::unique_ptr<Channel> channel(new Channel(std::move(segment), rank));
  auto on_death = [channel = channel.get()](int dead) {
    channel->is_dead_[static_cast<std::size_t>(dead)].store(true);
    channel->ring(channel->rank_);
  };
  Result<std::unique_ptr<DeathWatch>> watch = DeathWatch::start(pids, on_death);
  if (!watch) return watch.error();
  channel->watch_ = std::move(*watch);
  return channel;
}

std::uint64_t Channel::seen(int rank, Counter counter) const {
  return segment_->words(rank).counters[static_cast<int>(counter)].load(std::memory_order_acquire);
}

void Channel::ring(int rank) {
  std::atomic<std::uint32_t>& bell = segment_->words(rank).bell;
  bell.fetch_add(1);
  futex_wake(bell);
}

// The fence and await()'s pair up: either this rank sees the sleeper, or the sleeper the count.
void Channel::publish(Counter counter, std::uint64_t value) {
  own_.counters[static_cast<int>(counter)].store(value, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    if (segment_->words(peer).is_asleep.load(std::memory_order_relaxed) != 0) ring(peer);
  }
}

template <class Visit>
void Channel::for_each(Need::Of of, int root, Visit visit) const {
  if (of == Need::Of::Nobody) return;
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

// Why somebody does not take part in the collective that begins with `first`, though all that this
// rank needs of it may have been given.
std::optional<std::string> Channel::given_up(std::uint64_t first) const {
  if (auto own = failure()) return own;
  for (int peer = 0; peer < ranks(); ++peer) {
    const RankWords& words = segment_->words(peer);
    if (words.life.load() == Life::Failed && words.given_up.load() <= first) {
      return reason_of(words);
    }
  }
  return std::nullopt;
}

// Who has died or failed takes part in nothing more, so whoever still waits, for whomever, waits in
// vain.  Who has left gave what it had to give, and is missed only where that is not enough.
std::optional<std::string> Channel::obstacle(const Wait& wait) const {
  if (auto own = failure()) return own;
  std::optional<std::string> reason;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const RankWords& words = segment_->words(peer);
    const bool is_dead = is_dead_[static_cast<std::size_t>(peer)].load();
    const Life life = words.life.load();
    const std::string name = "rank " + std::to_string(peer) + " of " + std::to_string(ranks());
    if (life == Life::Running && is_dead) {
      return name + " has died while others wait for it in " + in_words(*wait.call);
    }
    if (life == Life::Failed) {
      reason = reason_of(words);
    } else if (life == Life::Left &&
               (lacks(wait.need, wait.root, peer) || lacks(wait.wanted, wait.root, peer))) {
      reason = name + " has left while others wait for it in " + in_words(*wait.call);
    }
  }
  return reason;
}

std::string Channel::late(const Wait& wait) const {
  std::vector<int> missing;
  for_each(wait.need.of, wait.root, [&](int peer) {
    if (seen(peer, wait.need.counter) < wait.need.value) missing.push_back(peer);
  });
  return ranks_in_words(missing) + " of " + std::to_string(ranks()) + " did not come to " +
         in_words(*wait.call) + " within " + seconds_in_words(wait.timeout);
}

// A peer's end is seen before its count is read once more: what it gave before still counts.
std::optional<std::string> Channel::await(const Wait& wait, Patience patience) {
  auto has_news = [&] { return is_met(wait.need, wait.root); };
  if (auto reason = given_up(wait.first)) return reason;
  if (has_news()) return std::nullopt;
  if (patience == Patience::Look && looked_for(has_news)) return std::nullopt;
  while (true) {
    own_.is_asleep.store(1);
    const std::uint32_t bell = own_.bell.load();
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool is_done = has_news();
    std::optional<std::string> problem;
    if (!is_done) problem = obstacle(wait);
    if (problem && has_news()) continue;
    if (!is_done && !problem && steady_clock::now() >= wait.deadline) problem = late(wait);
    if (!is_done && !problem) futex_wait(own_.bell, bell, wait.deadline);
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
    own_.given_up.store(first);
    own_.life.store(Life::Failed);
    has_failed_.store(true);
  }
  for (int rank = 0; rank < ranks(); ++rank) ring(rank);
}

void Channel::leave() {
  std::lock_guard lock(mutex_);
  if (!has_failed_.load()) own_.life.store(Life::Left);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer != rank_) ring(peer);
  }
}

}  // namespace ddprun::ddp::shm
