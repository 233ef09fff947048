// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member_places.h"

#include <algorithm>

namespace ddprun::rendezvous::member {

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
  if (state.place) return to_string(*state.place);
  if (config.may_move() && state.link == Link::Up)
    return to_string(config.node.settings.endpoints.front());
  return config.endpoint;
}

}  // namespace ddprun::rendezvous::member
