// SPDX-License-Identifier: BSD-3-Clause
//
// One collective of one rank: what it was asked for, and the moves of its plan carried out on the
// segment.  When to make which move, and what to wait for, is the engine's.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/shm/channel.h"

namespace ddprun::ddp::shm {

// What a caller wants.  The memory stays valid, and is left alone, until the collective has ended.
struct Request {
  Call call;
  const std::byte* input = nullptr;  // call.bytes of it
  std::byte* output = nullptr;       // as many; may be the input.  Not of an all_gather
  std::vector<std::byte*> parts;     // of an all_gather: where the bytes of each rank go
  std::chrono::milliseconds timeout{};
};

// How the bytes of `call` travel: small all-reduces are gathered and added up by every rank, since
// there the second meeting of all costs more than the arithmetic.
Route route_of(const Call& call);

// Threads: one at a time.
class Transfer {
 public:
  // `first` is the number of its first chunk; the deadline runs from `now`.
  Transfer(const Request& request, std::uint64_t first, const Layout& layout, Deadline now);

  const Plan& plan() const { return plan_; }
  const Request& request() const { return request_; }

  // Makes the first Post without waiting, if it is the only one and can be made.  From then on the
  // peers need this rank no more for this collective, whenever it comes to make its other moves.
  bool try_post(Channel& channel);

  // Makes all moves that are left.  Returns a sentence when it cannot.
  std::optional<std::string> run(Channel& channel, Patience patience);

 private:
  std::optional<std::string> make(const Move& move, Channel& channel, Patience patience);
  std::optional<std::string> disagreement(const Channel& channel);
  void post(const Channel& channel, std::uint64_t chunk);
  void reduce(const Channel& channel, std::uint64_t chunk);
  void collect(const Channel& channel, std::uint64_t chunk);
  void collect_all(const Channel& channel, std::uint64_t chunk);
  void add_up(const Channel& channel, std::uint64_t chunk, const Span& span);

  Request request_;
  Plan plan_;
  Deadline deadline_;
  bool is_posted_ = false;
  bool is_compared_ = false;
};

}  // namespace ddprun::ddp::shm
