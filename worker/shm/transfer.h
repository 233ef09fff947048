// SPDX-License-Identifier: BSD-3-Clause
//
// One collective of one rank: runs the steps of its plan on the segment.  The engine decides when
// and on which thread.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/shm/channel.h"

namespace ddprun::ddp::shm {

// A collective to run.  The memory must stay valid and unchanged until the collective has ended.
struct Request {
  Fingerprint fingerprint;
  const std::byte* input = nullptr;  // fingerprint.bytes of it
  // As many; may be the input.  Not of an all_gather or a gather.  Of a reduce it is overwritten on
  // every rank, and has the result on the root alone.
  std::byte* output = nullptr;
  // Where the bytes of each rank go: of an all_gather, and of a gather on its root.
  std::vector<std::byte*> parts;
  std::chrono::milliseconds timeout{};
};

// The algorithm for a collective.  Small all-reduces are gathered and added up by every rank: a
// second synchronisation would cost more than the arithmetic.
Algorithm algorithm_for(const Fingerprint& fingerprint);

// Threads: one at a time.
class Transfer {
 public:
  // `first` is the number of its first chunk; the deadline runs from `now`.
  Transfer(const Request& request, std::uint64_t first, const Layout& layout, Deadline now);

  const Plan& plan() const { return plan_; }
  const Request& request() const { return request_; }

  // Runs the first Post without waiting, if it is the only one and its slot is free.  After that
  // the peers need nothing more from this rank for this collective.
  bool try_post(Channel& channel);

  // Runs the remaining steps.  Returns an error sentence if it cannot.
  std::optional<std::string> run(Channel& channel, WaitMode mode);

 private:
  std::optional<std::string> execute(const Step& step, Channel& channel, WaitMode mode);
  std::optional<std::string> disagreement(const Channel& channel);
  void post(const Channel& channel, std::uint64_t chunk);
  void reduce(const Channel& channel, std::uint64_t chunk);
  bool wants_result(int rank) const;
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
