// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/history.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/decide/host_change.h"

namespace ddprun::rendezvous::coordinator {
namespace {

void note_all_are_back(State& state) {
  state.were_all_former = state.phase == Phase::Gathering && !state.has_formed;
  // A coordinator that is no node, or was in no round with these, may have begun a later one with
  // others, if none of these has workers.
  bool may_others_live = may_move(state) ? state.former.is_broken
                                         : may_change_host(state) && !state.former.was_host_in_it;
  if (!may_others_live) forget_contacts(state);
}

// That are known here; an agent may also have died on the machine of a run that had this id long
// ago.
std::set<RoundId> known_rounds(const State& state) {
  std::set<RoundId> rounds;
  if (state.former.awaited) rounds.insert(state.former.awaited->id());
  for (const auto& [id, node] : state.nodes)
    if (!node.knows.by.empty()) rounds.insert(node.knows);
  for (const auto& [name, gone] : state.quorum.gone)
    if (!gone.knows.by.empty()) rounds.insert(gone.knows);
  return rounds;
}

}  // namespace

void found_if_first(State& state, const std::string& id, const request::Join& join, MonoTime now) {
  bool is_first = state.founder.empty() || (state.nodes.empty() && !state.former.awaited);
  if (!is_first) return;
  state.founder = id;
  state.run_uuid = join.run_uuid.empty() ? id : join.run_uuid;
  state.settings = join.settings;
  state.policy = join.policy;
  state.moving.endpoint = join.endpoint;
  state.lease_factor = 1;
  state.gathering_since = now;
  state.next_look = now + std::min(state.policy.keep_alive_interval, kLongestMute);
}

// Of the rounds that were formed here nobody knows better how many restarts they have cost: one may
// have been taken back since the node heard of it.
void learn_rounds(State& state, const request::Join& join) {
  bool knows_more = !state.has_formed || join.next_round > state.next_round;
  if (knows_more) state.restarts.count = std::max(state.restarts.count, join.restart_count);
  state.next_round = std::max(state.next_round, join.next_round);
  if (!std::exchange(state.had_round, true)) state.run_uuid = join.run_uuid;
}

void expect_others(State& state, const std::string& id, const request::Join& join, bool goes_on,
                   MonoTime now) {
  // A node that was told of no round says of no other start of the run that it was before.
  bool is_of_none = join.run_uuid.empty() && join.next_round == 0;
  bool goes_on_here = is_taken_over(state) && !state.former.awaited;
  if (is_of_none && goes_on_here) return;
  if (state.has_formed && (join.run_uuid.empty() || join.run_uuid == state.run_uuid)) return;
  MonoTime until = now + std::max(state.policy.lease(), join.policy.lease());
  bool was_in_round = join.was_in_round || (may_change_host(state) && !join.round_by.empty());
  if (state.former.node_is_back(id, join, until, goes_on, was_in_round)) note_all_are_back(state);
  set_former_end(state);
}

void account_for_died(State& state) {
  if (!may_change_host(state)) return;
  const std::set<RoundId> known = known_rounds(state);
  auto is_of_run = [&](const Died& died) {
    const auto& former = state.former.awaited;
    return known.contains(died.knows) || (former && former->names.contains(died.name));
  };
  std::map<std::string, std::pair<request::Left, MonoTime>> found;
  for (const auto& [id, node] : state.nodes) {
    for (const Died& died : node.join.died) {
      bool is_news = !died.left.empty() && !state.quorum.gone.contains(died.name);
      if (!is_news || !is_of_run(died)) continue;
      request::Left left{.why = died.left,
                         .knows = died.knows,
                         .nodes = died.nodes,
                         .after = died.after,
                         .seen_of = died.seen_of};
      found[died.name] = {std::move(left), node.came_at};
    }
  }
  for (const auto& [name, last] : found) {
    const auto& [left, came_at] = last;
    const std::string id = name + ".0";
    note_gone(state, id, left, came_at);
    account_for_left(state, id, left);
  }
}

void account_for_left(State& state, const std::string& id, const request::Left& left) {
  std::optional<RoundId> round;
  if (left.round) round = RoundId{.number = *left.round};
  if (!left.knows.by.empty()) round = left.knows;
  if (state.former.node_has_left(id, round)) note_all_are_back(state);
  set_former_end(state);
}

}  // namespace ddprun::rendezvous::coordinator
