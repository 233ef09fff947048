// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member_places.h"

#include <algorithm>

#include "rendezvous/decide/node_id.h"

namespace ddprun::rendezvous::member {
namespace {

// Who hosts, where a registry or the host before has said it.
std::optional<Endpoint> host_at(const State& state, const Config& config) {
  if (!config.has_registry) return std::nullopt;
  return state.place ? state.place : state.found_at;
}

}  // namespace

std::vector<Place> places_of(const State& state, const Config& config) {
  std::vector<Place> all{{}};
  const std::vector<Endpoint>& endpoints = config.node.settings.endpoints;
  for (std::size_t i = 1; i < endpoints.size(); ++i) all.push_back({.at = endpoints[i], .own = {}});
  if (config.may_move()) return all;
  const std::vector<StandIn>& stand_ins = state.stand_ins;
  // Where the host was when this node heard of it last: it may be this node that was cut off.
  if (state.host_at) all.push_back({.at = state.host_at, .own = {}});
  for (std::size_t i = 0; i < stand_ins.size(); ++i) {
    bool is_own = stand_ins[i].name == config.name;
    all.push_back(
        {.at = stand_ins[i].at, .own = is_own ? std::optional<std::size_t>(i) : std::nullopt});
  }
  return all;
}

std::vector<std::optional<Endpoint>> places_to_knock_at(const State& state, const Config& config) {
  std::vector<std::optional<Endpoint>> places;
  for (const Place& place : places_of(state, config)) {
    // A registry may have another host by now.
    bool is_elsewhere =
        (place.at != state.place && !place.own) || (!place.at && config.has_registry);
    if (is_elsewhere && (state.wants_round || !place.at)) places.push_back(place.at);
  }
  return places;
}

std::size_t endpoint_of(const std::optional<Endpoint>& place, const Config& config) {
  if (!place) return 0;
  const std::vector<Endpoint>& endpoints = config.node.settings.endpoints;
  return static_cast<std::size_t>(std::ranges::find(endpoints, *place) - endpoints.begin());
}

std::string where(const State& state, const Config& config) {
  if (auto at = host_at(state, config)) {
    // Else the coordinator may be that of another place.
    bool is_met = state.is_joined || state.link == Link::Up;
    std::string node = is_met ? coordinator::agent_text(state.coordinator, "") : "";
    return to_string(*at) + (node.empty() ? "" : " (" + node + ")");
  }
  if (state.place) return to_string(*state.place);
  if (config.may_move() && state.link == Link::Up)
    return to_string(config.node.settings.endpoints.front());
  return config.endpoint;
}

std::string meeting_text(const State& state, const Config& config) {
  return where(state, config) +
         (host_at(state, config) ? ", which hosts the run" : ", where the nodes meet");
}

std::string heard_last_at(const State& state, const Config& config) {
  const std::vector<Endpoint>& endpoints = config.node.settings.endpoints;
  return state.pulse_from < endpoints.size() ? to_string(endpoints[state.pulse_from])
                                             : where(state, config);
}

std::string silence_text(const State& state, const Config& config, const std::string& silence) {
  const std::string words = " has been silent for " + silence;
  if (!config.may_move()) return meeting_text(state, config) + "," + words;
  bool is_elsewhere =
      state.link == Link::Up && endpoint_of(state.place, config) != state.pulse_from;
  return heard_last_at(state, config) + ", where the nodes meet," + words +
         (is_elsewhere ? ", and the run has not gone on at " + where(state, config) : "");
}

}  // namespace ddprun::rendezvous::member
