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
      throw DdpError(format_ranks({rank}) + " of " + std::to_string(world_size) +
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

PeerInfo local_peer_info(bool wants_shm) {
  PeerInfo peer{.wants_shm = wants_shm, .pid = ::getpid()};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> peer.boot;
  char target[64] = {};
  if (::readlink("/proc/self/ns/pid", target, sizeof target - 1) > 0) peer.pid_namespace = target;
  if (peer.boot.empty() || peer.pid_namespace.empty()) peer.wants_shm = false;
  return peer;
}

// Rank 0's decision, and the segment if it is shared memory.
HandshakeResult decide(const std::vector<std::string>& texts, const Layout& layout,
                       std::unique_ptr<Segment>& segment) {
  std::vector<PeerInfo> peers;
  HandshakeResult result;
  for (const std::string& text : texts) {
    peers.push_back(value_or_throw(decode_peer_info(text)));
    result.pids.push_back(peers.back().pid);
  }
  result.refusal = refusal_of(peers);
  if (!result.refusal.empty()) return result;
  Result<std::unique_ptr<Segment>> made = Segment::create(layout);
  if (!made) {
    result.refusal = to_string(made.error());
    return result;
  }
  segment = std::move(*made);
  result.fd = segment->address().fd;
  result.token = segment->address().token;
  return result;
}

// This rank's channel, or why it cannot be opened.
Result<std::unique_ptr<Channel>> open_channel(const HandshakeResult& result, int rank,
                                              const Layout& layout,
                                              std::unique_ptr<Segment> segment) {
  if (!segment) {
    const Address address{.pid = result.pids[0], .fd = result.fd, .token = result.token};
    Result<std::unique_ptr<Segment>> opened = Segment::open(address, layout);
    if (!opened) return opened.error();
    segment = std::move(*opened);
  }
  return Channel::open(std::move(segment), rank, result.pids);
}

}  // namespace

// Three steps: every rank publishes its PeerInfo, rank 0 decides, every rank answers whether it
// could open the segment.  A rank answers after it began to watch the others, so all process ids
// are alive then.
Connection connect(c10d::Store& store, int rank, int world_size, bool wants_shm,
                   std::chrono::milliseconds timeout) {
  if (world_size > kMaxRanks) return {.channel = nullptr, .refusal = too_many()};
  const Layout layout{.ranks = world_size};
  const std::string own = '/' + std::to_string(rank);
  put(store, "peer" + own, encode(local_peer_info(wants_shm)));
  std::unique_ptr<Segment> segment;
  if (rank == 0) {
    put(store, "result",
        encode(decide(gather(store, "peer", world_size, timeout), layout, segment)));
  }
  const HandshakeResult result =
      value_or_throw(decode_handshake_result(get(store, "result", timeout)));
  if (!result.refusal.empty()) return {.channel = nullptr, .refusal = result.refusal};

  Result<std::unique_ptr<Channel>> channel = open_channel(result, rank, layout, std::move(segment));
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
  if (!channel) throw DdpError(channel.error());  // another group answers under these keys
  return {.channel = std::move(*channel), .refusal = ""};
}

}  // namespace ddprun::ddp::shm
