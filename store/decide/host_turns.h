// SPDX-License-Identifier: BSD-3-Clause
//
// Who waits for a place in a queue, and whose turn it is: a host after another, so that one that
// floods waits for its own requests, and the others for one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace ddprun::store {

// Threads: not safe for concurrent use.
class HostTurns {
 public:
  // Of one who waits.  Numbers grow in the order in which they come.
  using Number = std::uint64_t;

  // One more who waits, behind those of its own host.
  Number add(const std::string& host);

  // The client whose turn it is, which waits no longer; nothing where none waits.  Of one host it
  // is the one that came first.
  std::optional<Number> next();

  bool empty() const { return waiting_.empty(); }

  // Whether a client that came no later than `number` waits still.
  bool has_up_to(Number number) const { return !empty() && *waiting_.begin() <= number; }

  // The number last given.
  Number last() const { return last_; }

 private:
  Number last_ = 0;
  std::set<Number> waiting_;
  std::unordered_map<std::string, std::deque<Number>> hosts_;
  std::deque<std::string> ring_;  // the hosts of those who wait; whose turn is next is first
};

}  // namespace ddprun::store
