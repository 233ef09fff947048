// SPDX-License-Identifier: BSD-3-Clause
//
// Where ranks come from.  Everyone else receives them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace ddprun::rendezvous {

// One node's part in a round.
struct Participant {
  int local_world_size = 1;  // workers on the node, at least 1
  std::string role = "default";
};

// What follows for one node from all participants of the round.
struct Assignment {
  int group_rank = 0;        // the node's own place
  int group_world_size = 1;  // nodes in the round
  int base_rank = 0;         // the global rank of the node's local rank 0
  int world_size = 1;        // workers in the round
  int role_base_rank = 0;    // as base_rank, counting only workers of the node's role
  int role_world_size = 1;   // workers of that role
};

// Assigns ranks to `participants`, which come in the order of their group ranks.  Ranks are dense
// from 0, node after node; nodes may differ in their number of workers and in their role, as with
// torchelastic's rank exchange.  Linear in the number of nodes.
std::vector<Assignment> assign_ranks(std::span<const Participant> participants);

}  // namespace ddprun::rendezvous
