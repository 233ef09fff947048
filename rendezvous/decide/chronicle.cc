// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/chronicle.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

namespace ddprun::rendezvous {
namespace {

using coordinator::Phase;

void add(RunChronicle& chronicle, Happening happening) {
  ++chronicle.happened;
  chronicle.happenings.push_back(std::move(happening));
  if (chronicle.happenings.size() > kKeptHappenings) chronicle.happenings.pop_front();
}

Happening round_of(const coordinator::State& state, WallTime at) {
  Happening round{.kind = Happening::Kind::RoundBegan, .at = at, .round = state.round};
  for (const auto& [id, node] : state.nodes) {
    if (!node.is_member) continue;
    ++round.nodes;
    round.workers += node.join.participant.local_world_size;
  }
  return round;
}

// The members of the round that begins, by their place in it.
std::map<std::string, LostNode> members_of(const coordinator::State& state) {
  std::map<std::string, LostNode> members;
  for (const auto& [id, node] : state.nodes) {
    bool has_place = node.is_member && node.round && node.round->number == state.round;
    if (!has_place) continue;
    members[id] = {.id = id,
                   .host = node.join.host,
                   .workers = node.join.participant.local_world_size,
                   .group_rank = node.round->ranks.group_rank,
                   .base_rank = node.round->ranks.base_rank,
                   .round = state.round};
  }
  return members;
}

// This node goes of its own accord, or is done.
bool does_part(const Request& request) {
  const auto* left = std::get_if<request::Left>(&request);
  return std::holds_alternative<request::Leaving>(request) ||
         std::holds_alternative<request::Succeeded>(request) ||
         (left != nullptr && left->why.empty());
}

void find_lost(RunChronicle& chronicle, const coordinator::State& state, MonoTime now) {
  for (auto member = chronicle.members.begin(); member != chronicle.members.end();) {
    if (state.nodes.contains(member->first)) {
      ++member;
      continue;
    }
    member->second.at = now;
    chronicle.lost.push_back(std::move(member->second));
    member = chronicle.members.erase(member);
  }
  std::ranges::stable_sort(chronicle.lost, {}, &LostNode::base_rank);
}

Happening stop_of(const coordinator::State& state, WallTime at) {
  Happening stop{.kind = Happening::Kind::RoundStopped, .at = at, .round = state.round};
  if (!state.last_stop) return stop;
  stop.cause = word_of(*state.last_stop);
  stop.why = state.last_stop->why;
  stop.briefly = stop.why;
  if (auto failure = state.last_stop->failure) {
    stop.why = describe_briefly(*failure);
    failure->message.clear();
    stop.briefly = describe_briefly(*failure);
  }
  return stop;
}

// The nodes of the round that will say when their workers run.
std::set<std::string> starting_nodes(const coordinator::State& state) {
  std::set<std::string> starting;
  for (const auto& [id, node] : state.nodes) {
    if (node.is_member && node.join.says_up) starting.insert(id);
  }
  return starting;
}

void training_begins(RunChronicle& chronicle, MonoTime now) {
  if (!chronicle.interruption) return;
  chronicle.restarting[chronicle.interruption->cause] += now - chronicle.interruption->at;
  chronicle.interruption.reset();
}

void end_start(RunChronicle& chronicle, MonoTime now) {
  if (!std::exchange(chronicle.starting_on, {}).empty())
    chronicle.starting += now - chronicle.since;
}

// All workers of this node run, or have ended well.
void note_up(RunChronicle& chronicle, const Message& message, MonoTime now) {
  const auto* heartbeat = std::get_if<request::Heartbeat>(&message.request);
  const auto* succeeded = std::get_if<request::Succeeded>(&message.request);
  bool is_up = (heartbeat != nullptr && heartbeat->up == chronicle.round) ||
               (succeeded != nullptr && succeeded->round == chronicle.round);
  if (!is_up || !chronicle.starting_on.contains(message.node)) return;
  if (chronicle.starting_on.size() > 1) {
    chronicle.starting_on.erase(message.node);
    return;
  }
  end_start(chronicle, now);
  training_begins(chronicle, now);
}

// Of a run that ends without a stop, its rounds are over as well.
void change(RunChronicle& chronicle, const coordinator::State& state, Now now) {
  Phase before = std::exchange(chronicle.phase, state.phase);
  if (before == Phase::Running) end_start(chronicle, now.mono);
  const Duration spent = now.mono - chronicle.since;
  chronicle.spent.at(static_cast<std::size_t>(before)) += spent;
  chronicle.since = now.mono;
  if (state.phase == Phase::Running) {
    ++chronicle.rounds;
    chronicle.round = state.round;
    chronicle.starting_on = starting_nodes(state);
    if (chronicle.starting_on.empty()) training_begins(chronicle, now.mono);
    chronicle.nodes.round_began();
    add(chronicle, round_of(state, now.wall));
    chronicle.members = members_of(state);
    std::erase_if(chronicle.lost,
                  [&](const LostNode& node) { return now.mono - node.at >= kLostShown; });
  } else if (state.phase == Phase::Stopping) {
    Happening stop = stop_of(state, now.wall);
    ++chronicle.stops[stop.cause];
    if (before == Phase::Running && state.last_stop && state.last_stop->failure)
      chronicle.hanging += std::min(state.last_stop->failure->hung_for, spent);
    if (!chronicle.interruption) chronicle.interruption = {.cause = stop.cause, .at = now.mono};
    add(chronicle, std::move(stop));
  } else if (state.phase == Phase::Ended) {
    add(chronicle, {.kind = Happening::Kind::RunEnded,
                    .at = now.wall,
                    .round = state.round,
                    .why = state.verdict.why});
  }
}

}  // namespace

std::string_view word_of(const command::Stop& stop) {
  switch (stop.cause) {
    case RoundEndCause::WorkerFailed:
      return "failed";
    case RoundEndCause::NodeLost:
      return word_of(stop.loss == LossKind::Other ? LossKind::Lost : stop.loss);
    case RoundEndCause::NodeJoined:
      return "joined";
  }
  return "?";
}

RunChronicle& Chronicle::entry_of(const std::string& run, const coordinator::State& state,
                                  Now now) {
  auto [found, is_new] = runs_.try_emplace(run);
  RunChronicle& chronicle = found->second;
  bool is_other = !state.run_uuid.empty() && !chronicle.run_uuid.empty() &&
                  state.run_uuid != chronicle.run_uuid;
  if (is_other) end(run);
  if (is_other) return entry_of(run, state, now);
  if (is_new) {
    chronicle = {.began = now.wall, .since = now.mono};
    if (state.next_round > 0) chronicle.nodes.took_over(state.next_round - 1, now.wall);
  }
  chronicle.run_uuid = state.run_uuid;
  return chronicle;
}

void Chronicle::end(const std::string& run) {
  auto gone = runs_.extract(run);
  if (gone.empty()) return;
  ended_.push_back({.run = run, .chronicle = std::move(gone.mapped())});
  if (ended_.size() > kKeptEnded) ended_.pop_front();
}

void Chronicle::heard(const Message& message, const coordinator::State* state, Now now) {
  if (state != nullptr) entry_of(message.run, *state, now);
  auto known = runs_.find(message.run);
  if (known != runs_.end()) {
    known->second.nodes.heard(message, state, now.wall);
    if (does_part(message.request)) known->second.members.erase(message.node);
    note_up(known->second, message, now.mono);
  }
  look(message.run, state, now);
}

void Chronicle::look(const std::string& run, const coordinator::State* state, Now now) {
  if (state == nullptr) return end(run);
  RunChronicle& chronicle = entry_of(run, *state, now);
  chronicle.nodes.look(*state, now.wall);
  bool is_other_round = state->phase == Phase::Running && !chronicle.happenings.empty() &&
                        chronicle.happenings.back().kind == Happening::Kind::RoundBegan &&
                        chronicle.happenings.back().round != state->round;
  // Not at every message: that would cost most of it in a large run.
  bool is_fewer = state->nodes.size() < std::exchange(chronicle.node_count, state->nodes.size());
  if (is_fewer || state->phase != chronicle.phase) find_lost(chronicle, *state, now.mono);
  if (state->phase != chronicle.phase || is_other_round) change(chronicle, *state, now);
}

const RunChronicle* Chronicle::find_ended(const std::string& run,
                                          const std::string& run_uuid) const {
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    if (ended->run == run && ended->chronicle.run_uuid == run_uuid) return &ended->chronicle;
  }
  return nullptr;
}

const RunChronicle* Chronicle::find(const std::string& run) const {
  auto found = runs_.find(run);
  return found == runs_.end() ? nullptr : &found->second;
}

RunTimes times_until(const RunChronicle& chronicle, MonoTime now) {
  auto spent = chronicle.spent;
  const Duration lately = now - chronicle.since;
  spent.at(static_cast<std::size_t>(chronicle.phase)) += lately;
  auto in = [&](Phase phase) { return spent.at(static_cast<std::size_t>(phase)); };
  const Duration starting =
      chronicle.starting + (chronicle.starting_on.empty() ? Duration::zero() : lately);
  return {.waiting = in(Phase::Gathering),
          .starting = starting,
          .training = in(Phase::Running)-starting,
          .stopping = in(Phase::Stopping),
          .restarting = chronicle.restarting,
          .hanging = chronicle.hanging};
}

}  // namespace ddprun::rendezvous
