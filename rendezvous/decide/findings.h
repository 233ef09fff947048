// SPDX-License-Identifier: BSD-3-Clause
//
// A wait of a worker for other ranks that was over before they came, and what the nodes find out
// about the other workers before these are stopped: which of them had not come, and what they do
// instead.  Values, and the choice of the suspects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/failure.h"

namespace ddprun::rendezvous {

// By the last words of the worker that waited.
struct TimedOutWait {
  std::string in{};            // "init_process_group", "all_reduce"; empty: not known
  bool is_idle = false;        // it takes no CPU time, and all others hear when one of it ends
  bool has_lost_peer = false;  // it was not over: a peer has closed its connection
  std::vector<int> missing{};  // the ranks that it names, at most kMaxNamed

  static constexpr std::size_t kMaxNamed = 64;
  friend bool operator==(const TimedOutWait&, const TimedOutWait&) = default;
};
inline constexpr const char* kInit = "init_process_group";

// Where the stack of a worker is.
enum class Whereabouts : std::uint8_t {
  Unknown,
  Waits,      // in the same wait, or its own wait was over, too
  Elsewhere,  // in none, or in another one
};

// What a worker does that has ended well before the others.
inline constexpr const char* kHadEnded = "had ended with exit code 0";

// What is known of one worker.
struct Finding {
  int rank = 0;
  int pid = 0;
  Whereabouts place = Whereabouts::Unknown;
  std::string doing{};  // "sleeps in load (data.py:40)"; empty: not known

  friend bool operator==(const Finding&, const Finding&) = default;
};

// A worker that was announced to the workers' store and has not connected.
struct Unconnected {
  int rank = 0;
  int pid = 0;

  friend bool operator==(const Unconnected&, const Unconnected&) = default;
};

// All that one node knows.
struct Findings {
  std::vector<Finding> workers{};          // that still run, at most kMaxWorkers
  std::vector<Unconnected> unconnected{};  // of all nodes, where this one has their store; likewise

  static constexpr std::size_t kMaxWorkers = 128;
  friend bool operator==(const Findings&, const Findings&) = default;
};

// The same of all nodes.
struct Inquiry {
  struct OfNode {
    std::string node;
    Finding finding;
  };
  std::vector<OfNode> workers;
  std::vector<Unconnected> unconnected;

  void add(const std::string& node, const Findings& findings);
};

// Puts into `failure`, whose wait is `wait`, who is suspected of having kept it waiting, and how
// many others waited as well.  Suspects are the ranks that never connected to the store, those that
// the worker's words name, and those whose stacks are elsewhere.  A rank whose stack shows that it
// waits, too, is none.  Where that leaves nobody, it is the one of which nothing is known, or the
// few.  Of a lost peer only those are that had ended well.
void name_suspects(Failure& failure, const TimedOutWait& wait, const Inquiry& inquiry);

// A rank that is suspected in several of a run's failures.
struct KeptWaiting {
  int rank = 0;
  std::string node{};
  int attempts = 0;
};
std::vector<KeptWaiting> kept_waiting_again(const std::vector<Failure>& failures);
// "kept others waiting in 3 attempts".
std::string describe(const KeptWaiting& kept);

}  // namespace ddprun::rendezvous
