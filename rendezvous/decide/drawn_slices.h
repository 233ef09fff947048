// SPDX-License-Identifier: BSD-3-Clause
//
// What the workers of a node have drawn in the run's timeline (worker/timeline_slice.h), on its way
// to the agent that hosts the run and writes the file.  No decision depends on it.  The text lies
// under keys::slices() in the store, where the next one replaces it: it has the last slices, with
// their numbers, so the host takes each once, however often it looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/trace.h"

namespace ddprun::rendezvous {

// A longer text is not read, and of more slices the first are left out.
inline constexpr std::size_t kMaxSlicesBytes = 64 * 1024;
inline constexpr std::size_t kMaxSlices = 64;

// A node's side.
class SliceBook {
 public:
  // Of a slice, with the local rank as its thread; `node` and `host` are not looked at.
  void add(const TraceEvent& slice);
  // The last ones, as many as there is room for.
  std::string text() const;

 private:
  std::deque<std::string> lines_;  // JSON
  std::uint64_t end_ = 0;          // the number of the next one
};

// The host's side.
class SliceWatch {
 public:
  // What is new in the text of this node; strangers may have written it, and what is no slice is
  // left out.  Where there were others that nobody has seen, an event that says how many.  The
  // events are of no node yet.
  std::vector<TraceEvent> news(const std::string& node, std::string_view text);
  void forget(const std::string& node) { seen_.erase(node); }

 private:
  std::map<std::string, std::uint64_t> seen_;  // by node: the number of the next one
};

}  // namespace ddprun::rendezvous
