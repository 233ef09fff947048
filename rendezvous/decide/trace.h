// SPDX-License-Identifier: BSD-3-Clause
//
// What has happened to a run, in the Trace Event format, which ui.perfetto.dev and chrome://tracing
// draw: a process is a node, a thread a local rank.  Pure; TraceText writes each event as it
// happens, so that a file is readable wherever it ends.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::rendezvous {

// Threads of a node beside its local ranks, which begin at 0.
inline constexpr int kAgentThread = 100'000;  // what its agent does

struct TraceEvent {
  // Slice: a beginning and an end in one, which leaves what is open as it is.
  enum class Kind : std::uint8_t { Begin, End, Instant, Slice };

  Kind kind = Kind::Instant;
  WallTime at{};
  WallTime until{};    // of a slice
  std::string node{};  // its name (node_id.h); empty: the run itself
  std::string host{};  // what people call it; needed with a node's first event
  int thread = 0;
  // The same happens to so many threads, from `thread` on.
  int threads = 1;
  std::string name{};
  // Of workers that begin: the rank of the first of these threads, which is added to the name.
  int base_rank = -1;
  std::vector<std::pair<std::string, std::string>> facts{};
};

class TraceText {
 public:
  // The array's beginning; the lines of each event follow, and at last the end.
  static std::string head() { return "[\n"; }
  // Lines that end with a comma, with what names a node or a thread that is new.  An end without a
  // beginning is no event, and a beginning ends what the thread has begun before.
  std::string lines(const TraceEvent& event);
  // What is still open stays open.
  static std::string tail();

 private:
  struct Thread {
    bool is_open = false;
  };
  struct Node {
    int number = 0;
    std::map<int, Thread> threads{};
  };

  Node& node_of(const TraceEvent& event, std::string& out);

  std::map<std::string, Node> nodes_;
};

// The text of a file that may have been cut anywhere, as a whole one: without the half of a line,
// and with its end.
std::string completed_trace(std::string text);

}  // namespace ddprun::rendezvous
