// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member_state.h"

#include <algorithm>
#include <string>

#include "rendezvous/decide/pulse.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kLeastMute = std::chrono::seconds(1);         // of a connection
constexpr Duration kLongestInterval = std::chrono::seconds(10);  // of heartbeats
// A coordinator that says it is alone may know better soon, and one that has just come back to life
// may not have said so yet: so many parts of the silence limit.
constexpr int kAskAgainParts = 40;

}  // namespace

std::string node_id(const State& state, const Config& config) {
  return config.name + "." + std::to_string(state.incarnation);
}

Policy policy_of(const State& state, const Config& config) {
  Policy policy = config.node.policy;
  if (state.keep_alive) {
    policy.keep_alive_interval = state.keep_alive->keep_alive_interval;
    policy.keep_alive_max_attempt = state.keep_alive->keep_alive_max_attempt;
    policy.lease_grace = state.keep_alive->lease_grace;
  }
  // The run's, also under the next host.
  if (const command::Round* last = last_known(state)) policy.max_restarts = last->max_restarts;
  return policy;
}

bool has_workers(const State& state) {
  return state.workers == Workers::Up || state.workers == Workers::Stopping;
}

bool has_workers_of(const State& state, std::uint64_t round) {
  return state.is_joined && state.workers == Workers::Up && state.last &&
         state.last->number == round;
}

bool waits_for_verdict(const State& state, const Config& config) {
  return state.is_joined && state.workers == Workers::Succeeded && state.is_at_daemon &&
         !config.may_move();
}

bool is_unheard_for_long(const State& state, const Config& config, MonoTime now) {
  return state.unheard_since &&
         now - *state.unheard_since >= config.patience(state.last.has_value());
}

bool looks_where_known(const State& state) {
  return !state.last && state.stand_ins.empty() && !state.known_before.at.empty();
}

bool is_where_known(const State& state) {
  return !state.last && !state.place_of.empty();
}

bool waits_for_round(const State& state) {
  return state.is_joined && state.link == Link::Up && state.wants_round;
}

bool waits_outside(const State& state) {
  bool is_going = state.is_leaving || state.has_ended;
  return !state.is_joined && state.link == Link::Up && state.wants_round && !is_going;
}

bool has_stand_ins(const State& state) {
  return state.last && !state.last->by.empty();
}

const command::Round* last_known(const State& state) {
  if (!state.last) return nullptr;
  bool is_later = state.formed && state.formed->number > state.last->number;
  return is_later ? &*state.formed : &*state.last;
}

bool may_forget(const State& state) {
  return state.has_verdict && !state.place;
}

bool may_change_host(const State& state, const Config& config) {
  return config.stand_in_port != 0 || config.may_move() || has_stand_ins(state);
}

bool is_above_lease(const State& state, const Config& config) {
  return state.is_own_host && !may_change_host(state, config);
}

bool hosts_with_lease(const State& state, const Config& config) {
  return state.is_own_host && may_change_host(state, config);
}

bool has_turn(const State& state, const Config& config) {
  return state.last && config.stand_in_port != 0 &&
         std::ranges::find(state.stand_ins, config.name, &StandIn::name) != state.stand_ins.end();
}

Duration heartbeat_interval(const State& state, const Config& config) {
  Policy policy = policy_of(state, config);
  Duration interval =
      std::min({policy.keep_alive_interval, policy.silence_limit() / 4, kLongestInterval});
  if (!has_stand_ins(state)) return interval;
  // The hosting node's own lease is as old as the pulses that the others confirm.
  bool is_soon = state.is_echo_due || state.asks_since ||
                 (state.pulse.ends_with(kAloneMark) && !hosts_with_lease(state, config));
  return std::min(interval, policy.silence_limit() / (is_soon ? kAskAgainParts : 6));
}

std::optional<MonoTime> mute_at(const State& state, const Config& config) {
  bool is_heard = state.link == Link::Up && (state.is_joined || waits_outside(state));
  if (!is_heard || !state.asked_at) return std::nullopt;
  Duration limit = policy_of(state, config).silence_limit();
  MonoTime mute = *state.asked_at + std::max(limit / 5, kLeastMute);
  return state.muted_at ? std::max(mute, *state.muted_at + limit) : mute;
}

MonoTime reads_until(const State& state, const Config& config) {
  if (!state.woke_at) return MonoTime::min();
  return *state.woke_at + contact_limit(state, config) / kReadingParts;
}

std::optional<MonoTime> asks_until(const State& state, const Config& config) {
  if (!state.asks_since || waits_for_verdict(state, config)) return std::nullopt;
  return *state.asks_since + contact_limit(state, config);
}

MonoTime next_tick(const State& state, const Config& config) {
  if (state.is_over) return MonoTime::max();
  if (!state.is_joined && state.link != Link::Up) return MonoTime::max();
  MonoTime beat = state.last_tick + heartbeat_interval(state, config);
  if (!state.is_joined) return beat;
  MonoTime reads = reads_until(state, config);
  MonoTime judged =
      asks_until(state, config).value_or(std::max(loses_contact_at(state, config), reads));
  if (auto mute = mute_at(state, config)) judged = std::min(judged, std::max(*mute, reads));
  return std::min(beat, judged);
}

bool is_tick_late(const State& state, const Config& config, MonoTime now) {
  return now - next_tick(state, config) >= contact_limit(state, config) / kReadingParts;
}

bool has_stood_still(const State& state, const Config& config, MonoTime now) {
  return state.is_joined && !is_above_lease(state, config) &&
         now - state.last_tick >= contact_limit(state, config);
}

Duration lease(const State& state, const Config& config) {
  Policy policy = policy_of(state, config);
  return policy.lease() - policy.silence_limit() / 10;
}

MonoTime end_of_lease(const State& state, const Config& config) {
  if (!has_workers(state)) return MonoTime::max();
  MonoTime end = MonoTime::max();
  if (!state.is_joined) {
    end = state.cut_off_lease.value_or(end);
  } else if (!is_above_lease(state, config)) {
    end = state.pulse_at + lease(state, config);
  }
  // The others wait no longer, however long the lease may be.
  if (end != MonoTime::max()) end = std::min(end, state.leaves_by);
  return end;
}

// What the others confirm of a hosting node may be an interval old when it comes, and the next
// comes an interval later: a blink of the network must fit in between.  The workers keep a fifth of
// the silence limit to end by themselves before the end of the lease.
MonoTime loses_contact_at(const State& state, const Config& config) {
  if (waits_for_verdict(state, config)) return state.pulse_at + config.patience(true);
  const Duration limit = contact_limit(state, config);
  const MonoTime soonest = state.pulse_at + limit;
  if (!hosts_with_lease(state, config) || !has_workers(state)) return soonest;
  const MonoTime latest = state.pulse_at + policy_of(state, config).silence_limit() * 7 / 10;
  return std::clamp(state.confirmed_at + limit, soonest, latest);
}

Duration contact_limit(const State& state, const Config& config) {
  if (!has_workers(state)) return lease(state, config);
  return policy_of(state, config).silence_limit() / 2;
}

}  // namespace ddprun::rendezvous::member
