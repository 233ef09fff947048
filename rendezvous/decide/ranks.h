// SPDX-License-Identifier: BSD-3-Clause
//
// Where ranks come from.  Everyone else receives them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::rendezvous {

// One node's part in a round.
struct Participant {
  int local_world_size = 1;  // workers on the node, at least 1
  std::string role = "default";
};

// One that a node has started.
struct StartedWorker {
  int rank = 0;
  int pid = 0;
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

// What decides a node's place among the others.
struct Claim {
  std::optional<int> wanted;    // --node-rank
  std::optional<int> previous;  // its group rank in the round before
  std::string host;
  std::uint64_t arrival = 0;
};

// The order of group ranks: element k of the result is the index of the claim that gets rank k.
// A wanted rank comes first, then a previous one, so that a survivor keeps its place wherever there
// still is such a place; the others fill the gaps in the natural order of host names ("node2"
// before "node10"), then of arrival.  Of two claims to one place the earlier arrival gets it.
// O(n log n).
std::vector<std::size_t> seat(std::span<const Claim> claims);

// "node2" < "node10": runs of digits compare as numbers, of any length.
bool comes_before_naturally(std::string_view left, std::string_view right);

}  // namespace ddprun::rendezvous
