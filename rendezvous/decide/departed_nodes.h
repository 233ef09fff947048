// SPDX-License-Identifier: BSD-3-Clause
//
// Nodes that are in no run here: what they were told last, which of them may not know yet that they
// were given up, and which have left before they came.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/runs.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::runs {

// For one step.  What it is given outlives it.
class DepartedNodes {
 public:
  DepartedNodes(State& state, std::vector<Action>& actions, MonoTime now)
      : state_(state), actions_(actions), now_(now) {}

  void clear_what_is_old();

  // The last that a node is told which is in no run, or no more.
  void send_last(const std::string& node, std::uint64_t connection, Command command);

  void note_given_up(const std::string& run, const std::string& node);
  // The nodes of this run that were given up are nodes of another coordinator by now.
  void acquit_those_of(const std::string& run);

  // The guardian of an agent that was killed speaks on a connection of its own: its Left may come
  // before the agent's Join, or, if that agent was the host, before the run is known here.
  void note_early(const Message& message);
  // Whether the node that comes has left already.
  bool has_left_early(const Message& message);

 private:
  void acquit_oldest();

  State& state_;
  std::vector<Action>& actions_;
  MonoTime now_;
};

// When something of this is too old; MonoTime::max(): never.
MonoTime departed_nodes_due(const State& state);

}  // namespace ddprun::rendezvous::runs
