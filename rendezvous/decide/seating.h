// SPDX-License-Identifier: BSD-3-Clause
//
// Which of the nodes that have come are in the next round, and with which ranks.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/decide/ranks.h"
#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// A node of a round.  Both pointers are into State::nodes.
struct Seat {
  const std::string* id;
  Node* node;
  Assignment ranks;
};

// At most max_nodes of those who are there, by group rank: survivors of the last round first, then
// who came first.  No node is a member when it returns.
std::vector<Seat> seat_nodes(State& state, MonoTime now);

}  // namespace ddprun::rendezvous::coordinator
