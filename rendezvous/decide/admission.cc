// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/admission.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rendezvous/decide/history.h"
#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/waiting_text.h"

namespace ddprun::rendezvous::coordinator {

void Admission::node_joined(const std::string& id, const request::Join& join,
                            std::uint64_t connection) {
  std::uint64_t speaker = out_.answer_on(connection);  // it may have waited
  consider(id, join, connection);
  out_.answer_on(speaker);
}

void Admission::consider(const std::string& id, const request::Join& join,
                         std::uint64_t connection) {
  if (is_outdated(id)) return;
  forget_waiting(id);
  if (state_.phase == Phase::Ended) {
    // Who was in a round of this run has only been away.
    if (join.next_round > 0) return out_.send_on(id, connection, state_.verdict);
    if (state_.next_run.size() < kMaxStandbys) state_.next_run.push_back({id, join, connection});
    return;
  }
  if (state_.taken_out.contains(id)) return;
  std::optional<MonoTime> last_call = state_.last_call;
  lose_earlier_incarnations(id);
  if (!state_.last_call) state_.last_call = last_call;  // it takes the place of itself
  if (state_.phase == Phase::Ended) return out_.send_on(id, connection, state_.verdict);  // by that
  found_if_first(state_, id, join, now_);
  note_contact_elsewhere(state_, join, now_);
  if (join.is_back) expect_others(state_, id, join, false, now_);
  if (!join.preflight_failure.empty() && state_.had_round) {
    return out_.send(id, command::Refuse{preflight_text(join)});
  }
  if (!has_same_settings(id, join, connection)) return;
  if (is_rank_free(id, join, connection)) admit(id, join, connection);
}

// The nodes of the same agent, by the end of their names: "host-uuid.INCARNATION".
std::vector<std::string> Admission::incarnations_of(const std::string& id) const {
  std::vector<std::string> found;
  std::string name = name_of(id);
  if (name == id) return found;
  name += '.';
  for (auto node = state_.nodes.lower_bound(name);
       node != state_.nodes.end() && node->first.starts_with(name); ++node) {
    if (node->first != id) found.push_back(node->first);
  }
  return found;
}

// A message that was under way for long: the node has come back as another meanwhile, which is in
// the run or waits.
bool Admission::is_outdated(const std::string& id) const {
  auto is_later = [&](const std::string& other) {
    return name_of(other) == name_of(id) && comes_before(id, other);
  };
  return std::ranges::any_of(incarnations_of(id), is_later) ||
         std::ranges::any_of(state_.contenders, is_later,
                             [](const auto& entry) { return entry.first; }) ||
         std::ranges::any_of(state_.next_run, is_later, &NextComer::id);
}

// What waits is a join of this agent; the present one takes its place.
void Admission::forget_waiting(const std::string& id) {
  auto is_same = [&](const std::string& other) { return name_of(other) == name_of(id); };
  std::erase_if(state_.next_run, [&](const NextComer& comer) { return is_same(comer.id); });
  std::erase_if(state_.contenders, [&](const auto& entry) { return is_same(entry.first); });
}

void Admission::lose_earlier_incarnations(const std::string& id) {
  for (const std::string& earlier : incarnations_of(id)) {
    losses_.lose(earlier, LossKind::CutOff, state_.nodes.at(earlier).join.host + " was cut off", 0,
                 now_, true);
    admit_contenders_of(earlier);
  }
}

// Of a founder that has said nothing since it joined nobody knows whether there is more to it than
// a name: one that differs waits until it does.
bool Admission::has_same_settings(const std::string& id, const request::Join& join,
                                  std::uint64_t connection) {
  if (join.settings == state_.settings) return true;
  auto founder = state_.nodes.find(state_.founder);
  bool waits = founder != state_.nodes.end() && !founder->second.has_spoken && !state_.had_round;
  if (!waits) {
    refuse_difference(id, join, connection);
  } else if (state_.contenders.size() < kMaxStandbys) {
    state_.contenders[id] = {.rival = state_.founder, .join = join, .connection = connection};
  }
  return false;
}

void Admission::refuse_difference(const std::string& id, const request::Join& join,
                                  std::uint64_t connection) {
  std::string difference = difference_text(join.settings, state_.settings);
  auto founder = state_.nodes.find(state_.founder);
  auto first = founder != state_.nodes.end() ? founder : state_.nodes.begin();
  // All may have gone, of a run that others are awaited for.
  std::string begun =
      first != state_.nodes.end() ? ", begun by " + describe(first->second.join) + "," : "";
  out_.send_on(id, connection,
               command::Refuse{"it has " + difference + " as the other nodes of the run" + begun +
                               " have it"});
  state_.last_refusal = "refused " + describe(join) + ": it has " + difference + " here";
  if (founder != state_.nodes.end()) out_.send(state_.founder, command::Info{state_.last_refusal});
}

// Of two nodes with one --node-rank the first has it, unless it turns out to be gone.
bool Admission::is_rank_free(const std::string& id, const request::Join& join,
                             std::uint64_t connection) {
  if (!join.node_rank) return true;
  if (*join.node_rank >= state_.settings.max_nodes) {
    std::string most = std::to_string(state_.settings.max_nodes);
    out_.send(id, command::Refuse{"--node-rank=" + std::to_string(*join.node_rank) +
                                  ": with at most " + most + " nodes it is 0.." +
                                  std::to_string(state_.settings.max_nodes - 1)});
    return false;
  }
  if (has_precedence(join)) clear_rank(*join.node_rank, join);
  if (auto holder = state_.holders.find(*join.node_rank); holder != state_.holders.end()) {
    if (state_.contenders.size() < kMaxStandbys)
      state_.contenders[id] = {.rival = holder->second, .join = join, .connection = connection};
    return false;
  }
  return true;
}

// Under a new host a node of the round before may come after one that never had a round.
bool Admission::has_precedence(const request::Join& join) const {
  if (state_.phase != Phase::Gathering || known_round(join).by.empty()) return false;
  auto holder = state_.holders.find(*join.node_rank);
  if (holder == state_.holders.end()) return false;
  return state_.nodes.at(holder->second).knows.by.empty();
}

// The rank is that of a node of the round before, so one that has come meanwhile cannot have it.
void Admission::clear_rank(int rank, const request::Join& owner) {
  auto holder = state_.holders.find(rank);
  if (holder == state_.holders.end()) return;
  auto other = state_.nodes.extract(holder->second);
  state_.holders.erase(holder);
  out_.send_on(other.key(), other.mapped().connection,
               command::Refuse{"--node-rank=" + std::to_string(rank) + " is that of " +
                               describe(owner) + " already"});
}

void Admission::admit(const std::string& id, const request::Join& join, std::uint64_t connection) {
  std::size_t most = static_cast<std::size_t>(state_.settings.max_nodes) + kMaxStandbys;
  if (state_.nodes.size() >= most) {
    return out_.send(id, command::Refuse{"there are " + std::to_string(state_.nodes.size()) +
                                         " nodes already, standbys included"});
  }
  if (join.next_round > 0) learn_rounds(state_, join);
  if (join.node_rank) state_.holders[*join.node_rank] = id;
  state_.nodes[id] = {.join = join,
                      .arrival = state_.arrivals++,
                      .connection = connection,
                      .seen = now_,
                      .came_at = now_,
                      .last_rank = join.previous_rank,
                      .knows = known_round(join)};
  if (join.policy != state_.policy) {
    out_.send(id, keep_alive_of(state_.policy, "the run goes by the settings of its first node: " +
                                                   policy_text(state_.policy)));
  }
  place(id, state_.nodes[id]);
}

void Admission::place(const std::string& id, Node& node) {
  switch (state_.phase) {
    case Phase::Gathering:
      return rounds_.form_if_due();
    case Phase::Running:
      rounds_.name_stand_ins_to(id);
      if (is_broken(state_) && !is_alone(state_, now_)) {
        // A node of the round which had to stop: the round cannot go on.
        return rounds_.stop({.cause = RoundEndCause::NodeLost,
                             .loss = LossKind::CutOff,
                             .why = node.join.host + " was cut off"});
      }
      if (has_room(state_) && !has_any_succeeded(state_) &&
          !is_flapping(state_, node.join.host, now_)) {
        return rounds_.expect_newcomer(id);
      }
      return rounds_.stand_by(id, node);
    case Phase::Stopping:
      if (state_.nodes.size() > static_cast<std::size_t>(state_.settings.max_nodes))
        rounds_.stand_by(id, node);
      return rounds_
          .form_if_due();  // it may be the last of a round that this coordinator took over
    case Phase::Ended:
      return;
  }
}

void Admission::lose(std::string id, LossKind kind, const std::string& why, int signal,
                     std::optional<MonoTime> since) {
  losses_.lose(id, kind, why, signal, since.value_or(now_));
  admit_contenders_of(id);
}

void Admission::judge_silent_nodes(std::uint64_t mark) {
  for (const std::string& id : losses_.judge_silent_nodes(mark)) admit_contenders_of(id);
}

void Admission::refuse_contenders_of(const std::string& rival) {
  for (auto it = state_.contenders.begin(); it != state_.contenders.end();) {
    if (it->second.rival != rival) {
      ++it;
      continue;
    }
    if (it->second.join.settings != state_.settings) {
      refuse_difference(it->first, it->second.join, it->second.connection);
      it = state_.contenders.erase(it);
      continue;
    }
    const request::Join& holder = state_.nodes[rival].join;
    std::string rank = std::to_string(*it->second.join.node_rank);
    std::string why = "--node-rank=" + rank + " is that of " + describe(holder) + " already";
    out_.send_on(it->first, it->second.connection, command::Refuse{why});
    out_.send(rival, command::Info{"refused " + describe(it->second.join) +
                                   ": --node-rank=" + rank + " is taken by this node"});
    state_.last_refusal = "refused " + describe(it->second.join) + ": " + why;
    it = state_.contenders.erase(it);
  }
}

void Admission::admit_contenders_of(const std::string& rival) {
  auto contenders = std::exchange(state_.contenders, {});
  for (auto& [id, contender] : contenders) {
    if (contender.rival != rival) {
      state_.contenders[id] = std::move(contender);
    } else {
      node_joined(id, contender.join, contender.connection);
    }
  }
}

void Admission::admit_orphans() {
  auto is_orphan = [&](const auto& entry) { return !state_.nodes.contains(entry.second.rival); };
  for (auto orphan = std::ranges::find_if(state_.contenders, is_orphan);
       orphan != state_.contenders.end();
       orphan = std::ranges::find_if(state_.contenders, is_orphan)) {
    auto entry = state_.contenders.extract(orphan);
    node_joined(entry.key(), entry.mapped().join, entry.mapped().connection);
  }
}

void Admission::drop_waiting(const std::string& id, std::uint64_t connection, bool has_left) {
  // The last will of an earlier attempt says nothing of the one on which it waits.
  auto is_heard_no_more = [&](std::uint64_t on) { return has_left || on <= connection; };
  std::erase_if(state_.next_run, [&](const auto& comer) {
    return comer.id == id && is_heard_no_more(comer.connection);
  });
  std::erase_if(state_.contenders, [&](const auto& contender) {
    return contender.first == id && is_heard_no_more(contender.second.connection);
  });
}

void Admission::note_died(const std::string& id, const std::vector<Died>& died) {
  auto contender = state_.contenders.find(id);
  if (contender != state_.contenders.end()) contender->second.join.died = died;
  for (NextComer& comer : state_.next_run) {
    if (comer.id == id) comer.join.died = died;
  }
}

void Admission::begin_next_run() {
  auto comers = std::exchange(state_.next_run, {});
  std::string self = std::move(state_.quorum.self);
  std::string daemon = std::move(state_.moving.daemon);
  bool may_move = !comers.front().join.settings.endpoints.empty();
  if (!daemon.empty()) self = may_move ? daemon : "";
  // Where hosts may change, number and coordinator tell each round from all others.
  std::uint64_t next_round = self.empty() ? 0 : state_.next_round;
  state_ = State{
      .next_round = next_round, .former = state_.former.take_for_next_run(), .last_turn = now_};
  state_.quorum.self = std::move(self);
  state_.moving.daemon = std::move(daemon);
  for (auto& comer : comers) node_joined(comer.id, comer.join, comer.connection);
}

void Admission::forget_next_run(const std::string& why) {
  for (auto& comer : std::exchange(state_.next_run, {})) {
    out_.send_on(comer.id, comer.connection,
                 command::Standby{.why = next_start_text(why), .is_outside = true});
  }
}

}  // namespace ddprun::rendezvous::coordinator
