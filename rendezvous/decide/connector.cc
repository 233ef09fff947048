// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/connector.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "rendezvous/decide/member_places.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);  // between attempts to connect
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kLasting = std::chrono::seconds(1);  // of a connection
constexpr Duration kLeastTry = std::chrono::milliseconds(500);

// An agent that knows no round asks at the endpoint for so long before it looks where an agent of
// its machine knew the run, and then asks there again after so long at the latest.
constexpr Duration kEndpointFirst = std::chrono::seconds(1);
constexpr Duration kEndpointAgain = std::chrono::milliseconds(500);

// Of the stand-ins the next one opens so much later, if those before it do not answer.
constexpr Duration kStandInTurn = std::chrono::seconds(1);

// Doubles, and is spread by the node's name, so that many nodes do not come at one moment.
Duration pause_before(std::uint64_t attempt, const std::string& name, Duration longest) {
  Duration pause = kFirstPause * (std::uint64_t{1} << std::min<std::uint64_t>(attempt, 6));
  pause = std::min(pause, longest);
  std::uint64_t spread = std::hash<std::string>{}(name + std::to_string(attempt)) % 1000;
  return pause / 2 + pause / 2 * static_cast<std::int64_t>(spread) / 1000;
}

}  // namespace

void Connector::connect(Duration after) {
  state_.link = Link::Connecting;
  state_.connecting_since = now_;
  state_.attempts = 0;
  state_.seeks_since = now_;
  state_.next_known = 0;
  state_.place_of.clear();
  // A node that hosts the run is a node of it there.
  if (state_.sent_to) {
    state_.place = state_.sent_to;
  } else if (!state_.is_own_host) {
    state_.place.reset();
  }
  attempt(after);
}

// One place after the other; its own when those before it have had their time to answer.
void Connector::try_next_place(Duration longest) {
  if (looks_where_known(state_)) return try_next_known(longest);
  state_.place_of.clear();
  std::vector<Place> all = places_of(state_, config_);
  auto here = std::ranges::find(all, state_.place, &Place::at);
  std::size_t index = here == all.end() ? all.size() : static_cast<std::size_t>(here - all.begin());
  for (++index; index < all.size(); ++index) {
    const Place& place = all[index];
    Duration turn = place.own ? static_cast<std::int64_t>(*place.own) * kStandInTurn : Duration{};
    if (place.own && now_ - state_.seeks_since < turn) continue;
    state_.place = place.at;
    ++state_.connection;
    return attempt({}, place.own ? *place.own + 1 : 0);
  }
  state_.place.reset();
  connect_again(longest, kLongestPause);
}

// Where the endpoint's machine is gone, nothing else leads there.  But the run may have ended, and
// begin anew at the endpoint: places that do not answer must not keep this node from it.
void Connector::try_next_known(Duration longest) {
  if (state_.place_of.empty()) state_.left_endpoint_at = now_;
  const Duration waited = now_ - state_.connecting_since;
  if (waited < kEndpointFirst) {
    go_to_user_endpoint();
    return connect_again(std::min(longest, kEndpointFirst - waited), kLongestPause);
  }
  const std::vector<StandIn>& known = state_.known_before.at;
  const bool has_tried_all = state_.next_known >= known.size();
  if (!has_tried_all && now_ - state_.left_endpoint_at < kEndpointAgain) {
    const StandIn& next = known[state_.next_known++];
    state_.place = next.at;
    state_.place_of = next.name;
    ++state_.connection;
    return attempt();
  }
  go_to_user_endpoint();
  if (has_tried_all) {
    state_.next_known = 0;
    return connect_again(longest, kLongestPause);
  }
  ++state_.connection;
  attempt();
}

void Connector::go_to_user_endpoint() {
  state_.place.reset();
  state_.place_of.clear();
}

void Connector::reconnect(bool is_mute) {
  // A host that breaks one connection after the other is not asked without a pause.
  if (now_ - state_.connected_at >= kLasting) state_.attempts = 0;
  state_.is_first_try = true;
  // Of one that is silent there is no time to wait for another answer.
  if (config_.may_move() && is_mute) return try_next_endpoint();
  if (state_.attempts > 0) return connect_again_in_time();
  ++state_.attempts;
  ++state_.connection;
  attempt();
}

void Connector::reconnect_later() {
  if (config_.may_move()) return try_next_endpoint();
  connect_again_in_time();
}

Duration Connector::pause_before_going_back(std::uint64_t times) const {
  return pause_before(times, config_.name, kLongestPause);
}

void Connector::go_to_endpoint(std::size_t number, Duration after) {
  state_.link = Link::Connecting;
  state_.connecting_since = now_;
  state_.attempts = 0;
  state_.is_first_try = true;
  ++state_.connection;
  set_endpoint(number);
  attempt(after);
}

void Connector::attempt(Duration after, std::uint64_t stand_in) {
  actions_.emplace_back(action::Connect{.node = node_id(state_, config_),
                                        .connection = state_.connection,
                                        .after = after,
                                        .place = state_.place,
                                        .of = state_.place_of,
                                        .stand_in = stand_in,
                                        .timeout = try_time()});
}

// Each attempt is a connection of its own: the last will of one that failed may still be heard.
void Connector::connect_again(Duration most, Duration longest) {
  ++state_.connection;
  Duration pause = pause_before(state_.attempts++, config_.name, longest);
  attempt(std::min(most, pause));
}

// Often enough that the host may be away for most of the time that the workers have; and the node
// is not given up whose workers have succeeded, since that would make them all run again.
void Connector::connect_again_in_time() {
  bool is_part_of_round = has_workers(state_) || state_.workers == Workers::Succeeded;
  Duration longest = is_part_of_round ? lease(state_, config_) / 20 : kLongestPause;
  connect_again(kLongestPause, std::min(longest, kLongestPause));
}

// With workers: first the others in their order, then all of them, with a pause before each round.
void Connector::try_next_endpoint() {
  std::size_t here = endpoint_of(state_.place, config_);
  std::size_t next = here + 1;
  if (std::exchange(state_.is_first_try, false)) next = here == 0 ? 1 : 0;
  bool has_tried_all = next >= config_.node.settings.endpoints.size();
  if (has_tried_all) next = 0;
  set_endpoint(next);
  if (has_tried_all) return connect_again_in_time();
  ++state_.connection;
  attempt();
}

void Connector::set_endpoint(std::size_t number) {
  state_.place.reset();
  if (number > 0) state_.place = config_.node.settings.endpoints[number];
}

// A place that does not answer holds up the others.
Duration Connector::try_time() const {
  bool is_only_one = !has_stand_ins(state_) && places_of(state_, config_).size() == 1;
  if (is_only_one && !is_where_known(state_)) {
    bool is_first = now_ - state_.connecting_since < kEndpointFirst;
    return looks_where_known(state_) && is_first ? kEndpointFirst : Duration::zero();
  }
  return std::max(kLeastTry, policy_of(state_, config_).silence_limit() / 5);
}

}  // namespace ddprun::rendezvous::member
