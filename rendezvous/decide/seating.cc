// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/seating.h"

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

namespace ddprun::rendezvous::coordinator {
namespace {

using Candidate = std::pair<const std::string*, Node*>;

std::vector<Candidate> choose(State& state, MonoTime now) {
  std::vector<Candidate> chosen;
  chosen.reserve(state.nodes.size());
  for (auto& [id, node] : state.nodes) chosen.emplace_back(&id, &node);
  std::ranges::sort(chosen, {}, [&](const auto& entry) {
    const Node& node = *entry.second;
    bool is_newcomer = !node.is_member && node.knows.by.empty();  // or of a run with one host
    return std::tuple(is_flapping(state, node.join.host, now), !node.is_member, is_newcomer,
                      node.arrival);
  });
  // Of those that are lost again and again no more than must be.
  while (static_cast<int>(chosen.size()) > state.settings.min_nodes &&
         is_flapping(state, chosen.back().second->join.host, now)) {
    chosen.pop_back();
  }
  auto most = static_cast<std::size_t>(state.settings.max_nodes);
  for (auto& [id, node] : state.nodes) node.is_member = false;
  if (chosen.size() > most) chosen.resize(most);
  return chosen;
}

}  // namespace

std::vector<Seat> seat_nodes(State& state, MonoTime now) {
  std::vector<Candidate> chosen = choose(state, now);
  std::vector<Claim> claims;
  claims.reserve(chosen.size());
  // In the order in which they were chosen: a rank from an earlier round counts less than one
  // from the last.
  for (auto& [id, node] : chosen) {
    claims.push_back({.wanted = node->join.node_rank,
                      .previous = node->last_rank,
                      .host = node->join.host,
                      .arrival = claims.size()});
  }
  std::vector<std::size_t> order = seat(claims);
  std::vector<Participant> participants;
  participants.reserve(order.size());
  for (std::size_t i : order) participants.push_back(chosen[i].second->join.participant);
  std::vector<Assignment> ranks = assign_ranks(participants);
  std::vector<Seat> seats;
  seats.reserve(order.size());
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    auto& [id, node] = chosen[order[rank]];
    seats.push_back({.id = id, .node = node, .ranks = ranks[rank]});
  }
  return seats;
}

}  // namespace ddprun::rendezvous::coordinator
