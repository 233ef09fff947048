// SPDX-License-Identifier: BSD-3-Clause
//
// What the coordinator has heard of the nodes of one run, for people who ask why a round was
// stopped and which node knew what when.  Pure; it decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

struct NodeEvent {
  enum class Kind : std::uint8_t {
    Joined,
    Failed,    // a worker there, as the node says
    Leaving,   // it was asked to stop
    Left,      // its workers have ended; or its guardian says that the agent was killed
    Away,      // its connection is lost
    Back,      // on another connection
    Lost,      // it was given up
    TookOver,  // the run has come here from another host
  };

  Kind kind = Kind::Joined;
  WallTime at{};  // by the host's clock
  std::string host{};
  // A sentence part behind the host's name: "joined", "was stopped by SIGTERM".  That has the words
  // of a worker, which are for some readers only; `briefly` has not.
  std::string what{};
  std::string briefly{};
};

class NodeEvents {
 public:
  // So many are kept, the last; and of failures so many of each round.
  static constexpr std::size_t kKept = 128;
  static constexpr int kFailuresOfRound = 16;

  // A message of the run has been handled, and `state` is what followed; nullptr: it has ended.
  void heard(const Message& message, const coordinator::State* state, WallTime at);
  // Nodes may have been given up since.
  void look(const coordinator::State& state, WallTime at);
  void round_began() { failures_ = 0; }
  void took_over(std::uint64_t round, WallTime at);

  const std::deque<NodeEvent>& all() const { return events_; }

 private:
  void add(NodeEvent::Kind kind, const std::string& node, WallTime at, std::string what,
           std::string briefly = "");

  std::deque<NodeEvent> events_;
  std::map<std::string, std::string> hosts_;  // of the nodes of the run
  int failures_ = 0;                          // that were said in this round
};

// "joined", "failed", ...
const char* name_of(NodeEvent::Kind kind);

}  // namespace ddprun::rendezvous
