// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/shm_connect.h"

#include <unistd.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/error.h"
#include "worker/shm/decide/format.h"
#include "worker/shm/decide/handshake.h"

namespace ddprun::ddp::shm {
namespace {

std::vector<std::uint8_t> bytes_of_text(const std::string& text) {
  return {text.begin(), text.end()};
}

// Waits for the keys `name`/0, ... of all ranks, and returns what they hold.
std::vector<std::string> gather(c10d::Store& store, const std::string& name, int world_size,
                                std::chrono::milliseconds timeout) {
  std::vector<std::string> values;
  for (int rank = 0; rank < world_size; ++rank) {
    const std::string key = name + "/" + std::to_string(rank);
    try {
      store.wait({key}, timeout);
    } catch (const c10::Error&) {
      if (store.check({key})) throw;
      throw DdpError(ranks_in_words({rank}) + " of " + std::to_string(world_size) +
                     " did not come to agree on shared memory");
    }
    const std::vector<std::uint8_t> value = store.get(key);
    values.emplace_back(value.begin(), value.end());
  }
  return values;
}

void put(c10d::Store& store, const std::string& key, const std::string& text) {
  store.set(key, bytes_of_text(text));
}

std::string get(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  store.wait({key}, timeout);
  const std::vector<std::uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

Offer offer_here(bool wants_shm) {
  Offer offer{.wants_shm = wants_shm, .pid = ::getpid()};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> offer.boot;
  char target[64] = {};
  if (::readlink("/proc/self/ns/pid", target, sizeof target - 1) > 0) offer.pid_namespace = target;
  if (offer.boot.empty() || offer.pid_namespace.empty()) offer.wants_shm = false;
  return offer;
}

// What rank 0 makes of the offers, and the segment where it comes to that.
Decision decide(const std::vector<std::string>& texts, const Layout& layout,
                std::unique_ptr<Segment>& segment) {
  std::vector<Offer> offers;
  Decision decision;
  for (const std::string& text : texts) {
    offers.push_back(value_or_throw(decode_offer(text)));
    decision.pids.push_back(offers.back().pid);
  }
  decision.refusal = refusal_of(offers);
  if (!decision.refusal.empty()) return decision;
  Result<std::unique_ptr<Segment>> made = Segment::create(layout);
  if (!made) {
    decision.refusal = to_string(made.error());
    return decision;
  }
  segment = std::move(*made);
  decision.fd = segment->address().fd;
  decision.token = segment->address().token;
  return decision;
}

// This rank's channel; a sentence in its place when it cannot be had.
Result<std::unique_ptr<Channel>> open_channel(const Decision& decision, int rank,
                                              const Layout& layout,
                                              std::unique_ptr<Segment> segment) {
  if (!segment) {
    const Address address{.pid = decision.pids[0], .fd = decision.fd, .token = decision.token};
    Result<std::unique_ptr<Segment>> opened = Segment::open(address, layout);
    if (!opened) return opened.error();
    segment = std::move(*opened);
  }
  return Channel::open(std::move(segment), rank, decision.pids);
}

}  // namespace

// Three steps: every rank offers, rank 0 decides, every rank says whether it could do its part.  A
// process number is alive when its rank has answered after the others began to watch it.
Connection connect(c10d::Store& store, int rank, int world_size, bool wants_shm,
                   std::chrono::milliseconds timeout) {
  if (world_size > kMaxRanks) return {.channel = nullptr, .refusal = too_many()};
  const Layout layout{.ranks = world_size};
  const std::string own = '/' + std::to_string(rank);
  put(store, "offer" + own, encode(offer_here(wants_shm)));
  std::unique_ptr<Segment> segment;
  if (rank == 0) {
    put(store, "decision",
        encode(decide(gather(store, "offer", world_size, timeout), layout, segment)));
  }
  const Decision decision = value_or_throw(decode_decision(get(store, "decision", timeout)));
  if (!decision.refusal.empty()) return {.channel = nullptr, .refusal = decision.refusal};

  Result<std::unique_ptr<Channel>> channel =
      open_channel(decision, rank, layout, std::move(segment));
  put(store, "answer" + own, channel ? "" : to_string(channel.error()));
  if (rank == 0) {
    std::string problem;
    const std::vector<std::string> answers = gather(store, "answer", world_size, timeout);
    for (std::size_t i = 0; i < answers.size() && problem.empty(); ++i) {
      if (!answers[i].empty()) problem = "rank " + std::to_string(i) + ": " + answers[i];
    }
    put(store, "verdict", problem);
  }
  const std::string verdict = get(store, "verdict", timeout);
  if (!verdict.empty()) return {.channel = nullptr, .refusal = verdict};
  return {.channel = std::move(*channel), .refusal = ""};
}

}  // namespace ddprun::ddp::shm
