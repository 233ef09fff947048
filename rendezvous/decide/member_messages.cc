// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member_messages.h"

#include <utility>
#include <variant>

#include "rendezvous/decide/member_places.h"
#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous::member {
namespace {

// What was tried in vain so long ago may be reached by now.
constexpr Duration kMissedLately = std::chrono::seconds(5);

unsigned unreached(const State& state, MonoTime now) {
  unsigned endpoints = 0;
  for (const auto& [number, at] : state.missed_at) {
    if (number < kMaxEndpoints && now - at < kMissedLately) endpoints |= 1U << number;
  }
  return endpoints;
}

// What other hosts may not know, and would count this node by.
void note_known(const State& state, request::Left& left) {
  const command::Round* last = last_known(state);
  if (last == nullptr || last->by.empty()) return;
  left.knows = last->id();
  left.nodes = last->ranks.group_world_size;
  left.after = last->after;
  left.seen_of = state.seen.counted_by();
}

}  // namespace

request::Join join_request(const State& state, const Config& config, MonoTime now) {
  const NodeConfig& node = config.node;
  request::Join join{.host = node.host,
                     .address = node.address.empty() ? state.address : node.address,
                     .pid = node.pid,
                     .participant = node.participant,
                     .settings = node.settings,
                     .policy = policy_of(state, config),
                     .store_port = state.store_port,
                     .node_rank = node.node_rank,
                     .restart_count = state.restart_count,
                     .preflight_failure = node.preflight_failure,
                     .addresses = state.addresses,
                     .gives_bundle = true,
                     .says_up = true};
  join.is_back = state.has_joined;
  if (config.may_move()) {
    join.endpoint = endpoint_of(state.place, config);
    join.unreached = unreached(state, now);
  }
  join.was_in_round = state.workers != Workers::Down ||
                      (state.was_in_round_until && now < *state.was_in_round_until);
  // The coordinator in this agent tells it of its rounds.
  const command::Round* told = state.last ? &*state.last : nullptr;
  if (const auto* last = state.is_own_host ? told : last_known(state)) {
    join.previous_rank = last->ranks.group_rank;
    join.next_round = last->number + 1;
    join.run_uuid = last->run_uuid;
    join.previous_nodes = last->ranks.group_world_size;
    join.round_by = last->by;
    join.after = last->after;
  } else if (is_where_known(state)) {
    join.looks_for = state.known_before.run_uuid;
  }
  if (may_change_host(state, config)) {
    join.stand_in_port = config.stand_in_port;
    join.is_host = state.is_own_host;
    join.died = state.died;
    if (const std::optional<Contact> seen = state.seen.for_coordinator(state.coordinator)) {
      join.seen_age = now - seen->at;
      join.seen_of = seen->of;
    }
  }
  return join;
}

request::Heartbeat heartbeat(const State& state, const Config& config) {
  request::Heartbeat heartbeat{.heard = state.heard, .up = state.up_round};
  if (may_change_host(state, config)) {
    heartbeat.pulse = state.pulse_time;
    if (state.last) heartbeat.round = state.last->number;
    if (state.is_died_due) heartbeat.died = state.died;
  }
  return heartbeat;
}

request::Left left_at_end(const State& state, MonoTime now) {
  request::Left left;
  note_known(state, left);
  if (state.seen.last()) left.seen_age = now - state.seen.last()->at;
  return left;
}

command::Stop stop_of_last(const State& state, LossKind loss, const std::string& why) {
  return {.round = state.last->number,
          .cause = RoundEndCause::NodeLost,
          .loss = loss,
          .why = why,
          .restart_count = state.restart_count,
          .max_restarts = state.last->max_restarts};
}

Message last_message(const State& state, const Config& config, const std::string& why) {
  request::Left left{.why = why};
  if (state.workers != Workers::Down && state.last) left.round = state.last->number;
  note_known(state, left);
  return {.run = config.run,
          .node = node_id(state, config),
          .request = std::move(left),
          .connection = state.connection};
}

Died memory(const State& state, const Config& config) {
  request::Left left;
  note_known(state, left);
  return Died{.name = config.name,
              .knows = std::move(left.knows),
              .nodes = left.nodes,
              .after = std::move(left.after),
              .seen_of = std::move(left.seen_of)};
}

// Several endpoints the user has named, and a registry has the present host.
RunPlaces run_places(const State& state, const Config& config) {
  bool is_said_elsewhere = config.may_move() || config.has_registry;
  if (state.stand_ins_of.empty() || is_said_elsewhere || state.has_verdict) return {};
  RunPlaces places{.run_uuid = state.stand_ins_of, .at = {}};
  const std::string host = coordinator::hosting_node(state.host_name);
  if (state.host_at && host != state.host_name)
    places.at.push_back({.name = host, .at = *state.host_at});
  for (const StandIn& stand_in : state.stand_ins) {
    if (stand_in.name != config.name) places.at.push_back(stand_in);
  }
  return places;
}

std::optional<UnsaidLeft> unsaid_left(const State& state, const Config& config, MonoTime now,
                                      bool host_goes) {
  bool is_joined = state.is_joined || state.has_left;
  bool is_said = !host_goes && !state.is_over && is_joined && state.link == Link::Up;
  bool may_come_back = state.is_at_daemon && state.last;  // a daemon that is away for a moment
  if (is_said || state.has_verdict || !(has_stand_ins(state) || may_come_back)) return std::nullopt;
  UnsaidLeft unsaid{.message = {.run = config.run,
                                .node = node_id(state, config),
                                .request = left_at_end(state, now),
                                .connection = state.connection},
                    .places = {}};
  auto& left = std::get<request::Left>(unsaid.message.request);
  if (!has_stand_ins(state)) left.round = state.last->number;
  if (state.has_ended) {
    left.why = "has ended, since the rendezvous that it hosted failed";
  } else if (state.leaving) {
    left.why = state.leaving->why;
    left.loss = LossKind::Left;
  }
  for (const Place& place : places_of(state, config)) {
    if (!place.own) unsaid.places.push_back(place.at);
  }
  return unsaid;
}

}  // namespace ddprun::rendezvous::member
