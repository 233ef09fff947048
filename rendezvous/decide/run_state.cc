// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/run_state.h"

#include <algorithm>

namespace ddprun::rendezvous::coordinator {

bool is_up(const Node& node) {
  return node.is_member && !node.is_down && !node.has_succeeded;
}

bool has_only_store(const Node& node) {
  return node.is_member && node.has_succeeded && node.last_rank == 0;
}

bool may_be_lost(const Node& node, const Policy& policy, MonoTime now) {
  bool is_away = node.away_at && *node.away_at <= now;
  return is_away || node.seen + policy.keep_alive_interval * 3 / 2 <= now;
}

bool is_taken_over(const State& state) {
  return state.phase == Phase::Running && !state.has_formed;
}

bool is_broken(const State& state) {
  return is_taken_over(state) && state.former.is_broken;
}

bool may_form(const State& state) {
  if (state.former.awaited || state.up_count > 0) return false;
  return std::ranges::none_of(
      state.nodes, [](const auto& node) { return node.second.away_at || node.second.leaves_by; });
}

bool has_room(const State& state) {
  auto members =
      std::ranges::count_if(state.nodes, [](const auto& node) { return node.second.is_member; });
  return members < state.settings.max_nodes;
}

bool has_any_succeeded(const State& state) {
  return state.has_lost_finished || std::ranges::any_of(state.nodes, [](const auto& node) {
           return node.second.has_succeeded;
         });
}

bool is_flapping(const State& state, const std::string& host, MonoTime now) {
  return state.churn.is_flapping(host, state.policy.flap_limit, now);
}

const std::string& host_of(const State& state, const Node& node) {
  return node.join.host.empty() ? state.only_host : node.join.host;
}

std::string describe(const request::Join& join) {
  return join.host + " (pid " + std::to_string(join.pid) + ")";
}

}  // namespace ddprun::rendezvous::coordinator
