// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <utility>

#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/pulse.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);  // between attempts to connect
constexpr Duration kLasting = std::chrono::seconds(1);           // of a connection
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kPatience = std::chrono::seconds(2);  // until people are told of a wait
constexpr Duration kRepeat = std::chrono::seconds(20);
constexpr Duration kLeastMute = std::chrono::seconds(1);

// The workers of a node that leaves are dead so long before the others count on it.
constexpr Duration kLeaveLead = std::chrono::seconds(1);

// Of the stand-ins the next one opens so much later, if those before it do not answer.
constexpr Duration kStandInTurn = std::chrono::seconds(1);
constexpr Duration kLeastTry = std::chrono::milliseconds(500);
constexpr Duration kKnockPeriod = std::chrono::seconds(1);

// An agent that stood still for a moment has not read what lies in its socket.  So it judges the
// silence of the others this much later, in parts of contact_limit().
constexpr int kReadingParts = 20;

Policy policy_of(const State& state, const Config& config) {
  Policy policy = config.node.policy;
  if (state.keep_alive) {
    policy.keep_alive_interval = state.keep_alive->keep_alive_interval;
    policy.keep_alive_max_attempt = state.keep_alive->keep_alive_max_attempt;
    policy.lease_grace = state.keep_alive->lease_grace;
  }
  return policy;
}

// The host of the last round may be followed by another one.
bool has_stand_ins(const State& state) {
  return state.last && !state.last->by.empty();
}

// It may follow this one as soon as the first round is out, which the others may have and this node
// not yet: it may stand still between the two.
bool may_change_host(const State& state, const Config& config) {
  return config.stand_in_port != 0 || config.may_move() || has_stand_ins(state);
}

// Others count on this node, also where it would host nowhere itself.
bool says_contacts(const State& state, const Config& config) {
  return may_change_host(state, config);
}

// What stops this node does not stop its coordinator, for the others: it has a lease like them.
bool is_above_lease(const State& state, const Config& config) {
  return state.is_own_host && !may_change_host(state, config);
}

// What other hosts may not know, and would count this node by.
void note_known(const State& state, request::Left& left) {
  if (!state.last || state.last->by.empty()) return;
  left.knows = state.last->id();
  left.nodes = state.last->ranks.group_world_size;
  left.after = state.last->after;
  // Each coordinator that hears it is to count it, since one may not know of another.
  if (state.contact && !state.unreported) left.seen_of = state.contact->of;
}

request::Left left_at_end(const State& state, MonoTime now) {
  request::Left left;
  note_known(state, left);
  if (state.contact) left.seen_age = now - state.contact->at;
  return left;
}

// Often enough that a lost one does not look like silence, nor a long interval like a node that is
// no more than a name (kLongestMute).
constexpr Duration kLongestInterval = std::chrono::seconds(10);
Duration heartbeat_interval(const State& state, const Config& config) {
  Policy policy = policy_of(state, config);
  Duration interval =
      std::min({policy.keep_alive_interval, policy.silence_limit() / 4, kLongestInterval});
  // The hosting node's own lease is as old as the pulses that the others confirm.
  return has_stand_ins(state) ? std::min(interval, policy.silence_limit() / 6) : interval;
}

// Doubles, and is spread by the node's name, so that many nodes do not come at one moment.
Duration pause_before(std::uint64_t attempt, const std::string& name, Duration longest) {
  Duration pause = kFirstPause * (std::uint64_t{1} << std::min<std::uint64_t>(attempt, 6));
  pause = std::min(pause, longest);
  std::uint64_t spread = std::hash<std::string>{}(name + std::to_string(attempt)) % 1000;
  return pause / 2 + pause / 2 * static_cast<std::int64_t>(spread) / 1000;
}

// When a connection that does not answer counts as broken, so that another one is made while the
// lease lasts: one may die alone.  Not twice in a silence limit, and not where that is short, since
// it may be the host or the way to it that is slow.
std::optional<MonoTime> mute_at(const State& state, const Config& config) {
  if (state.link != Link::Up || !state.is_joined || !state.asked_at) return std::nullopt;
  Duration limit = policy_of(state, config).silence_limit();
  MonoTime mute = *state.asked_at + std::max(limit / 5, kLeastMute);
  return state.muted_at ? std::max(mute, *state.muted_at + limit) : mute;
}

// Until when an agent that stood still for a moment only reads; the past if it did not.
MonoTime reads_until(const State& state, const Config& config) {
  if (!state.woke_at) return MonoTime::min();
  return *state.woke_at + contact_limit(state, config) / kReadingParts;
}

bool has_workers(const State& state) {
  return state.workers == Workers::Up || state.workers == Workers::Stopping;
}

// Which agent has a coordinator, as people call it: "node0 (pid 17)", or "node0".
std::string coordinator_text(const std::string& coordinator, const std::string& unknown) {
  if (auto at = coordinator.find('@'); at != std::string::npos)
    return coordinator::host_of(coordinator.substr(0, at));
  std::size_t host = coordinator.find(' ');
  std::size_t pid = coordinator.rfind(' ');
  if (host == pid) return unknown;
  return coordinator.substr(host + 1, pid - host - 1) + " (pid " + coordinator.substr(pid + 1) +
         ")";
}

// Where the run may be, in the order in which it is looked for.
struct Place {
  std::optional<Endpoint> at;
  std::optional<std::size_t> own;  // it is this node's: how many stand-ins come before it
};
std::vector<Place> places_of(const State& state, const Config& config) {
  std::vector<Place> all{{}};
  const std::vector<Endpoint>& endpoints = config.node.settings.endpoints;
  for (std::size_t i = 1; i < endpoints.size(); ++i) all.push_back({.at = endpoints[i], .own = {}});
  if (config.may_move() || !has_stand_ins(state)) return all;
  const std::vector<StandIn>& stand_ins = state.last->stand_ins;
  for (std::size_t i = 0; i < stand_ins.size(); ++i) {
    bool is_own = stand_ins[i].name == config.name;
    all.push_back(
        {.at = stand_ins[i].at, .own = is_own ? std::optional<std::size_t>(i) : std::nullopt});
  }
  return all;
}

// Which of several endpoints a place is; none of them: their number.
std::size_t endpoint_of(const std::optional<Endpoint>& place, const Config& config) {
  if (!place) return 0;
  const std::vector<Endpoint>& endpoints = config.node.settings.endpoints;
  return static_cast<std::size_t>(std::ranges::find(endpoints, *place) - endpoints.begin());
}

// One step: the state being changed and the actions being collected.
class MemberTransition {
 public:
  MemberTransition(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now.mono), config_(config) {}

  // Having stood still, it may have been given up; or everybody stood still.  It asks before
  // anything else, whatever has happened.
  void notice_standstill() {
    Duration since_tick = now_ - state_.last_tick;
    bool has_stood = state_.is_joined && !is_above_lease(state_, config_) &&
                     since_tick >= contact_limit(state_, config_);
    if (!has_stood) return;
    state_.last_tick = now_;
    state_.asks_since = now_;
    want(action::NotifyUser{"this node stood still for " + seconds_text(since_tick) +
                            "; asking whether the run goes on with it"});
    if (state_.link == Link::Up && !state_.is_own_host) resume();
  }

  Step result() && {
    renew_lease();
    return {std::move(state_), std::move(actions_)};
  }

  void operator()(const event::RoundWanted& event) {
    state_.wants_round = true;
    state_.workers = Workers::Down;
    state_.failed.reset();
    state_.store_port = event.store_port;
    switch (state_.link) {
      case Link::Down:
        return connect();
      case Link::Connecting:
        return;
      case Link::Up:
        if (!state_.is_joined) return join();
        state_.ready_at = now_;
        return post(request::Ready{.round = state_.last ? state_.last->number : 0,
                                   .store_port = event.store_port});
    }
  }

  void operator()(const event::WorkerFailed& event) {
    if (!state_.is_joined || !state_.last) return;  // the agent has been told to stop already
    state_.workers = Workers::Stopping;
    // The guardian has ended it while this agent stood still: no worker has failed.
    bool is_lease_over = now_ >= state_.lease_end;
    if (is_lease_over && event.failure.status.signal == SIGKILL) {
      return cut_off(state_.asks_since
                         ? "this node stood still for longer than its lease"
                         : where() + " was away for longer than the lease of this node");
    }
    state_.failed = request::Failed{.round = state_.last->number,
                                    .failure = event.failure,
                                    .is_final = event.is_final,
                                    .wait = event.wait};
    state_.is_failure_posted = false;
    post_failure();
  }

  void operator()(const event::WorkersInspected& event) {
    if (!state_.is_joined || !state_.last) return;
    post(request::Found{.round = state_.last->number, .findings = event.findings});
  }

  void operator()(const event::WorkersSucceeded&) {
    state_.workers = Workers::Succeeded;
    if (state_.is_joined && state_.last) post(request::Succeeded{.round = state_.last->number});
  }

  void operator()(const event::Leaving& event) {
    if (state_.workers == Workers::Up) state_.workers = Workers::Stopping;
    state_.is_leaving = true;
    state_.leaving =
        request::Leaving{.why = event.why, .signal = event.signal, .grace = config_.stop_grace};
    state_.leaves_by =
        std::min(state_.leaves_by, now_ + config_.stop_grace + kLeaveMargin - kLeaveLead);
    if (state_.is_joined) {
      post(*state_.leaving);
    } else if (state_.link == Link::Connecting) {
      state_.is_over = true;
    }
  }

  void operator()(const event::Finished&) {
    if (state_.is_joined) post(left_at_end(state_, now_));
    state_.workers = Workers::Down;
    state_.is_over = true;
  }

  void operator()(const event::Connected& event) {
    if (state_.link == Link::Down) return want(action::Disconnect{});  // of no use any more
    const std::string before = state_.coordinator;
    bool knows_us = event.coordinator == before;
    bool is_same = knows_us || (event.is_at_daemon && state_.is_at_daemon);
    state_.link = Link::Up;
    state_.connected_at = now_;
    state_.address = event.address;
    state_.addresses = event.addresses;
    state_.died = event.died;
    state_.coordinator = event.coordinator;
    state_.is_at_daemon = event.is_at_daemon;
    state_.is_own_host = event.is_own_host;
    state_.pulse = event.pulse;
    state_.pulse_time = std::strtoll(event.pulse.c_str(), nullptr, 10);
    state_.sent_to.reset();
    state_.asked_at.reset();
    state_.resumes.clear();
    state_.last_tick = now_;
    if (state_.is_joined) {
      want(action::NotifyUser{"reached " + where() + " again"});
    } else if (!state_.told.empty()) {
      want(action::NotifyUser{"reached " + where()});
    }
    state_.told.clear();
    if (state_.is_joined) {
      if (!is_same) {
        return cut_off(coordinator_text(event.coordinator, "another node") + " hosts " + where() +
                       " now, and " + coordinator_text(before, "the one") +
                       " that did is gone with what it knew of this round");
      }
      // Another coordinator may have gone on without this node, and this one would not know of it.
      bool is_late = now_ - state_.pulse_at >= lease(state_, config_);
      if (!knows_us && is_late)
        return cut_off(where() + " was away for longer than the lease of this node");
      return resume();
    }
    state_.pulse_at = now_;
    if (state_.wants_round) join();
  }

  void operator()(const event::ConnectFailed& event) {
    if (state_.link == Link::Down) return;
    if (state_.is_joined) return resume_later(event);
    Duration waited = now_ - state_.connecting_since;
    Duration patience = config_.patience(state_.last.has_value());
    if (event.is_final || waited >= patience) {
      state_.link = Link::Down;
      state_.is_over = true;
      if (event.is_final) return want(action::NotifyFailure{event.why});
      return give_up(event.why + "; tried for " + seconds_text(waited));
    }
    bool is_due = event.why != state_.told || now_ - state_.told_at >= kRepeat;
    if (waited >= kPatience && is_due) {
      state_.told = event.why;
      state_.told_at = now_;
      want(action::NotifyUser{event.why + "; trying for " + seconds_text(patience - waited) +
                              " more"});
    }
    // The first word to people, and the last attempt, are not late.
    Duration left =
        waited < kPatience && patience > kPatience ? kPatience - waited : patience - waited;
    try_next_place(left);
  }

  // A broken connection says nothing of the run: it is made again, and the workers go on meanwhile.
  void operator()(const event::ConnectionLost& event) {
    if (state_.is_joined) {
      want(action::NotifyUser{"lost the connection to " + where() +
                              ", where the nodes meet: " + event.why + "; connecting again"});
      state_.asked_at.reset();
      want(action::Disconnect{});
      state_.link = Link::Connecting;
      state_.connecting_since = now_;
      if (is_unheard_for_long() && !has_workers(state_)) return give_up_unheard();
      // A host that breaks one connection after the other is not asked without a pause.
      if (now_ - state_.connected_at >= kLasting) state_.attempts = 0;
      state_.is_first_try = true;
      // Of one that is silent there is no time to wait for another answer.
      if (config_.may_move() && event.is_mute) return try_next_endpoint();
      if (state_.attempts > 0) return connect_again(kLongestPause, longest_pause());
      ++state_.attempts;
      ++state_.connection;
      return want(action::Connect{.node = node_id(state_, config_),
                                  .connection = state_.connection,
                                  .place = state_.place,
                                  .timeout = try_time()});
    }
    cut_off(where() + ", where the nodes meet, was lost: " + event.why);
  }

  // The others find no process at the endpoint, and begin anew without this node when its lease is
  // over.
  void operator()(const event::HostFailed& event) {
    std::string why =
        "the rendezvous that this node hosts at " + config_.endpoint + " has failed: " + event.why;
    bool was_joined = std::exchange(state_.is_joined, false);
    state_.has_ended = true;
    state_.link = Link::Down;
    want(action::Disconnect{});
    bool had_workers = has_workers(state_);
    if (had_workers) state_.workers = Workers::Stopping;
    if (had_workers && was_joined) state_.cut_off_lease = state_.pulse_at + lease(state_, config_);
    state_.is_over = !had_workers;
    want(action::NotifyFailure{why, state_.cut_off_lease});
  }

  void operator()(const event::Heard& event) {
    // Whoever answers there could say these for ever.
    bool is_sign = !std::holds_alternative<command::Info>(event.command) &&
                   !std::holds_alternative<command::Moved>(event.command);
    if (is_sign) state_.unheard_since.reset();
    std::visit([&](const auto& command) { heard(command); }, event.command);
  }

  void operator()(const event::PulseSeen& event) {
    if (!state_.asked_at) return;
    MonoTime asked_at = *std::exchange(state_.asked_at, std::nullopt);
    bool is_first = state_.pulse.empty();
    bool is_news = std::exchange(state_.pulse, event.pulse) != event.pulse;
    if (is_news && !is_first) state_.unheard_since.reset();
    if (is_news) note_pulse(event.pulse, asked_at);
    // Where answers are slow, no time is lost between them.
    if (state_.is_joined && now_ - asked_at >= heartbeat_interval(state_, config_)) look();
  }

  void operator()(const event::Tick& event) {
    note_late_tick();
    state_.last_tick = now_;
    if (hosts_with_lease() && event.heard_at) note_heard(*event.heard_at);
    // No host is asked, and no node counts on this one; or no node goes on while it stands still.
    if (!state_.is_joined || is_above_lease(state_, config_)) state_.pulse_at = now_;
    if (!state_.is_joined) return;
    knock_if_due();
    Duration limit = contact_limit(state_, config_);
    bool is_up = state_.link == Link::Up;
    if (state_.asks_since) {
      if (now_ - *state_.asks_since >= limit) {
        return cut_off("this node stood still, and " + where() + " does not answer", now_);
      }
    } else if (now_ - state_.pulse_at >= limit && now_ >= reads_until(state_, config_)) {
      std::string silence = seconds_text(now_ - state_.pulse_at);
      return cut_off(hosts_with_lease()
                         ? "this node, which hosts the run, has heard too few of the others for " +
                               silence + ", and they may go on without it"
                         : where() + ", where the nodes meet, has been silent for " + silence);
    }
    if (!is_up) return;
    if (auto due = mute_at(state_, config_);
        due && now_ >= std::max(*due, reads_until(state_, config_))) {
      state_.muted_at = now_;
      return (*this)(event::ConnectionLost{
          .why = "it has not answered for " + seconds_text(now_ - *state_.asked_at),
          .is_mute = true});
    }
    look();
  }

 private:
  void give_up(std::string why) {
    state_.link = Link::Down;
    state_.is_over = true;
    if (!config_.is_spare || state_.last) return want(action::NotifyFailure{std::move(why)});
    want(action::NotifyEnd{{.why = "this spare node was not needed: " + why}});
  }
  // Something answers there, and that is no coordinator that lives.
  bool is_unheard_for_long() const {
    return state_.unheard_since &&
           now_ - *state_.unheard_since >= config_.patience(state_.last.has_value());
  }
  void give_up_unheard() {
    give_up("no coordinator at " + where() +
            ", where the nodes meet, has given a sign of life for " +
            seconds_text(now_ - *state_.unheard_since));
  }

  bool hosts_with_lease() const { return state_.is_own_host && may_change_host(state_, config_); }
  // Its own coordinator goes on as long as this agent does; its workers only as long as enough
  // other nodes see that.
  void note_heard(MonoTime heard_at) {
    state_.pulse_at = std::max(state_.pulse_at, heard_at);
    // A command that is under way may be from before; the answer is not.
    if (state_.asks_since && heard_at >= *state_.asks_since && state_.resumes.empty()) resume();
  }

  void note_pulse(const std::string& pulse, MonoTime asked_at) {
    state_.pulse_time = std::strtoll(pulse.c_str(), nullptr, 10);
    if (state_.is_joined) note_contact();
    if (std::exchange(state_.is_echo_due, false)) look();
    bool renews = !pulse.ends_with(kAloneMark) && !hosts_with_lease() && !state_.awaits_continue;
    // Whether this node still counts, only the answer to its question says.
    if (!renews || state_.asks_since) return;
    state_.pulse_at = std::max(state_.pulse_at, asked_at);
    post_failure();
  }

  // One at a time, so that it is known when the one began that is answered.
  void look() {
    if (state_.asked_at) return;
    state_.asked_at = now_;
    request::Heartbeat heartbeat;
    if (says_contacts(state_, config_)) {
      heartbeat.pulse = state_.pulse_time;
      if (state_.last) heartbeat.round = state_.last->number;
    }
    want(action::Heartbeat{message(heartbeat)});
  }

  // What people call the place where this node is, or tries to be.
  std::string where() const {
    if (state_.place) return to_string(*state_.place);
    if (config_.may_move() && state_.link == Link::Up)
      return to_string(config_.node.settings.endpoints.front());
    return config_.endpoint;
  }

  // A place that does not answer holds up the others.
  Duration try_time() const {
    if (!has_stand_ins(state_) && !config_.may_move()) return Duration::zero();
    return std::max(kLeastTry, policy_of(state_, config_).silence_limit() / 5);
  }

  // One place after the other; its own when those before it have had their time to answer.
  void try_next_place(Duration longest) {
    std::vector<Place> all = places_of(state_, config_);
    auto here = std::ranges::find(all, state_.place, &Place::at);
    std::size_t index =
        here == all.end() ? all.size() : static_cast<std::size_t>(here - all.begin());
    for (++index; index < all.size(); ++index) {
      const Place& place = all[index];
      Duration turn = place.own ? static_cast<std::int64_t>(*place.own) * kStandInTurn : Duration{};
      if (place.own && now_ - state_.seeks_since < turn) continue;
      state_.place = place.at;
      ++state_.connection;
      return want(action::Connect{.node = node_id(state_, config_),
                                  .connection = state_.connection,
                                  .place = place.at,
                                  .stand_in = place.own ? *place.own + 1 : 0,
                                  .timeout = try_time()});
    }
    state_.place.reset();
    connect_again(longest);
  }

  // A host looks whether the run is elsewhere as well: while it waits, wherever it may be; with a
  // round, at the endpoint, where nodes come that do not know of it, or who stands in the registry.
  void knock_if_due() {
    bool may_be_elsewhere = has_stand_ins(state_) || config_.has_registry;
    bool is_due = state_.is_own_host && may_be_elsewhere && state_.link == Link::Up &&
                  now_ >= state_.knocked_at + kKnockPeriod;
    if (!is_due) return;
    state_.knocked_at = now_;
    action::Knock knock;
    for (const Place& place : places_of(state_, config_)) {
      // A registry may have another host by now.
      bool is_elsewhere =
          (place.at != state_.place && !place.own) || (!place.at && config_.has_registry);
      if (is_elsewhere && (state_.wants_round || !place.at)) knock.places.push_back(place.at);
    }
    if (!knock.places.empty()) want(std::move(knock));
  }

  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  Message message(Request request) const {
    return {.run = config_.run,
            .node = node_id(state_, config_),
            .request = std::move(request),
            .connection = state_.connection};
  }
  void post(Request request) { want(action::Post{message(std::move(request))}); }

  void connect() {
    state_.link = Link::Connecting;
    state_.connecting_since = now_;
    state_.attempts = 0;
    state_.seeks_since = now_;
    // A node that hosts the run is a node of it there.
    if (state_.sent_to) {
      state_.place = state_.sent_to;
    } else if (!state_.is_own_host) {
      state_.place.reset();
    }
    want(action::Connect{.node = node_id(state_, config_),
                         .connection = state_.connection,
                         .place = state_.place,
                         .timeout = try_time()});
  }
  // Each attempt is a connection of its own: the last will of one that failed may still be heard.
  void connect_again(Duration most, Duration longest = kLongestPause) {
    ++state_.connection;
    Duration pause = pause_before(state_.attempts++, config_.name, longest);
    want(action::Connect{.node = node_id(state_, config_),
                         .connection = state_.connection,
                         .after = std::min(most, pause),
                         .place = state_.place,
                         .timeout = try_time()});
  }

  void note_contact() {
    Contact contact{.at = now_, .of = state_.coordinator};
    bool is_another = state_.contact && state_.contact->of != contact.of;
    if (config_.may_move() && is_another) state_.unreported = state_.contact;
    state_.contact = std::move(contact);
  }
  // The last with another coordinator than this one, or one with this one.
  std::optional<Contact> contact_elsewhere() const {
    bool is_here = state_.contact && state_.contact->of == state_.coordinator;
    return is_here && state_.unreported ? state_.unreported : state_.contact;
  }

  request::Join join_request() const {
    const NodeConfig& node = config_.node;
    request::Join join{.host = node.host,
                       .address = node.address.empty() ? state_.address : node.address,
                       .pid = node.pid,
                       .participant = node.participant,
                       .settings = node.settings,
                       .policy = policy_of(state_, config_),
                       .store_port = state_.store_port,
                       .node_rank = node.node_rank,
                       .restart_count = state_.restart_count,
                       .preflight_failure = node.preflight_failure,
                       .addresses = state_.addresses};
    join.is_back = state_.has_joined;
    if (config_.may_move()) join.endpoint = endpoint_of(state_.place, config_);
    join.was_in_round = state_.workers != Workers::Down ||
                        (state_.was_in_round_until && now_ < *state_.was_in_round_until);
    if (state_.last) {
      join.previous_rank = state_.last->ranks.group_rank;
      join.next_round = state_.last->number + 1;
      join.run_uuid = state_.last->run_uuid;
      join.previous_nodes = state_.last->ranks.group_world_size;
      join.round_by = state_.last->by;
      join.after = state_.last->after;
    }
    if (says_contacts(state_, config_)) {
      join.stand_in_port = config_.stand_in_port;
      join.is_host = state_.is_own_host;
      join.pulse = state_.pulse_time;
      join.died = state_.died;
      if (const std::optional<Contact> seen = contact_elsewhere()) {
        join.seen_age = now_ - seen->at;
        join.seen_of = seen->of;
      }
    }
    return join;
  }

  // Once after each contact: an agent that is always late must stop its workers all the same.
  void note_late_tick() {
    Duration late = now_ - next_tick(state_, config_);
    bool stood_still = late >= contact_limit(state_, config_) / kReadingParts;
    bool was_noted = state_.woke_at && *state_.woke_at > state_.pulse_at;
    if (stood_still && !was_noted) state_.woke_at = now_;
  }

  void join() {
    if (state_.is_leaving || state_.has_ended) return;
    state_.is_joined = true;
    state_.joined_at = now_;
    if (!state_.unheard_since) state_.unheard_since = now_;
    post(join_request());
    state_.has_joined = true;
    state_.was_in_round_until_before = std::exchange(state_.was_in_round_until, std::nullopt);
    if (!says_contacts(state_, config_)) return;  // from here on there may be later rounds
    state_.contact_before = state_.contact;
    note_contact();
    if (!has_stand_ins(state_)) return;  // nobody counts on it yet
    state_.is_echo_due = true;
    look();
  }

  // Without contact it may be the end of the lease, or of a peer, that ended the worker: it waits
  // until the run is known to go on with this node.
  void post_failure() {
    bool has_contact = !state_.asks_since && !state_.awaits_continue &&
                       now_ - state_.pulse_at < contact_limit(state_, config_);
    if (!has_contact && !state_.is_own_host) return;
    if (state_.failed && !std::exchange(state_.is_failure_posted, true)) post(*state_.failed);
  }

  // What the workers did when the failure came is not known any more.
  void resume() {
    if (state_.failed) state_.failed->wait.reset();
    state_.is_failure_posted = true;  // with this
    state_.resumes.push_back(now_);
    post(request::Resume{
        .join = join_request(), .workers = state_.workers, .failed = state_.failed});
    if (state_.leaving) post(*state_.leaving);
    bool is_elsewhere = state_.contact && state_.contact->of != state_.coordinator;
    if (!config_.may_move() || !is_elsewhere) return;
    // From here on it may count on this node.
    state_.awaits_continue = has_workers(state_);
    note_contact();
    state_.is_echo_due = true;
    look();
  }

  void resume_later(const event::ConnectFailed& event) {
    bool is_gone = event.is_refused && !state_.is_at_daemon;
    if (event.is_final || is_gone) {
      return cut_off(where() + ", where the nodes meet, was lost: " + event.why);
    }
    if (config_.may_move()) return try_next_endpoint();
    connect_again(kLongestPause, longest_pause());
  }
  // Often enough that the host may be away for most of the time that the workers have.
  Duration longest_pause() const {
    Duration longest = has_workers(state_) ? lease(state_, config_) / 20 : kLongestPause;
    return std::min(longest, kLongestPause);
  }

  // With workers: first the others in their order, then all of them, with a pause before each
  // round.
  void try_next_endpoint() {
    std::size_t here = endpoint_of(state_.place, config_);
    std::size_t next = here + 1;
    if (std::exchange(state_.is_first_try, false)) next = here == 0 ? 1 : 0;
    bool has_tried_all = next >= config_.node.settings.endpoints.size();
    if (has_tried_all) next = 0;
    go_to_endpoint(next);
    if (has_tried_all) return connect_again(kLongestPause, longest_pause());
    ++state_.connection;
    want(action::Connect{.node = node_id(state_, config_),
                         .connection = state_.connection,
                         .place = state_.place,
                         .timeout = try_time()});
  }
  void go_to_endpoint(std::size_t number) {
    state_.place.reset();
    if (number > 0) state_.place = config_.node.settings.endpoints[number];
  }

  // The coordinator has given this node up, or will have when its lease is over: its workers must
  // end before that, and it comes back as another node.
  void cut_off(const std::string& why, std::optional<MonoTime> kill_by = std::nullopt) {
    bool was_joined = std::exchange(state_.is_joined, false);
    MonoTime lease_end = state_.pulse_at + lease(state_, config_);
    state_.woke_at.reset();
    state_.asks_since.reset();
    state_.awaits_continue = false;
    ++state_.incarnation;
    state_.connection = 0;
    want(action::Disconnect{});
    if (was_joined && state_.workers != Workers::Down) state_.was_in_round_until = lease_end;
    bool is_needed = has_workers(state_) || state_.is_leaving || state_.has_ended;
    if (is_unheard_for_long() && !is_needed) return give_up_unheard();
    bool had_workers = has_workers(state_);
    if (had_workers && was_joined) state_.cut_off_lease = kill_by.value_or(lease_end);
    if (had_workers && state_.last) {
      state_.workers = Workers::Stopping;
      want(action::NotifyStop{stop_of_last(why), state_.cut_off_lease});
    } else if (state_.workers == Workers::Succeeded && !state_.has_ended && !state_.is_leaving) {
      // Its workers have done their part, but the others may begin a round without knowing.
      want(action::NotifyStop{stop_of_last(why)});
      want(action::NotifyWaiting{why});
    } else {
      want(action::NotifyUser{why});
    }
    if (state_.is_leaving || state_.has_ended) {
      state_.link = Link::Down;
    } else {
      connect();
    }
  }

  command::Stop stop_of_last(const std::string& why) const {
    return {.round = state_.last->number,
            .cause = StopCause::NodeLost,
            .why = why,
            .restart_count = state_.restart_count,
            .max_restarts = state_.last->max_restarts};
  }

  // Where the lease of the workers ends now, if that has changed.
  void renew_lease() {
    bool is_up = has_workers(state_);
    if (!is_up) state_.cut_off_lease.reset();
    MonoTime end = MonoTime::max();
    if (is_up && state_.is_joined && !is_above_lease(state_, config_)) {
      end = state_.pulse_at + lease(state_, config_);
    }
    if (is_up && !state_.is_joined) end = state_.cut_off_lease.value_or(end);
    // The others wait no longer, however long the lease may be.
    if (end != MonoTime::max()) end = std::min(end, state_.leaves_by);
    if (end != std::exchange(state_.lease_end, end)) want(action::RenewLease{end});
  }

  void heard(const command::Round& round) {
    bool is_old = state_.last && round.number <= state_.last->number;
    // The answer to a question that is under way tells whether it still holds.
    bool is_doubtful = state_.asks_since.has_value();
    if (!state_.wants_round || !state_.is_joined || is_old || is_doubtful) return;
    state_.wants_round = false;
    state_.workers = Workers::Up;
    state_.restart_count = round.restart_count;
    state_.last = round;
    // The coordinator has heard what it answers, and counts this node's silence from then at the
    // earliest.
    if (!hosts_with_lease())
      state_.pulse_at = std::max({state_.pulse_at, state_.joined_at, state_.ready_at});
    want(action::NotifyRound{round});
    if (round.by.empty()) return;
    note_contact();
    state_.unreported.reset();
    state_.contact_before.reset();
    state_.was_in_round_until_before.reset();
    state_.awaits_continue = false;
    if (!round.after.empty()) look();  // so that it is settled soon
  }
  void heard(const command::Inspect& inspect) {
    bool is_ours = state_.is_joined && state_.workers == Workers::Up && state_.last &&
                   state_.last->number == inspect.round;
    if (is_ours) want(action::NotifyInspect{inspect});
  }
  void heard(const command::TakeStacks& take) {
    bool is_ours = state_.is_joined && state_.workers == Workers::Up && state_.last &&
                   state_.last->number == take.round;
    if (is_ours) want(action::NotifyTakeStacks{take});
  }
  void heard(const command::Stop& stop) {
    bool is_ours =
        state_.is_joined && !state_.wants_round && state_.last && state_.last->number == stop.round;
    if (!is_ours) return;
    state_.restart_count = stop.restart_count;
    state_.workers = Workers::Stopping;
    state_.failed.reset();  // that has been heard, or does not count any more
    want(action::NotifyStop{stop});
  }
  void heard(const command::Waiting& waiting) {
    if (state_.is_joined && state_.wants_round) want(action::NotifyWaiting{waiting.why});
  }
  void heard(const command::End& end) {
    state_.has_verdict = true;
    if (std::exchange(state_.has_ended, true)) return;
    if (state_.workers == Workers::Up) state_.workers = Workers::Stopping;
    want(action::NotifyEnd{end});
  }
  void heard(const command::Refuse& refuse) {
    state_.is_over = true;
    want(action::NotifyFailure{"this node was refused at " + where() + ": " + refuse.why});
  }
  void heard(const command::Standby& standby) {
    want(action::NotifyUser{"standing by: " + standby.why});
  }
  void heard(const command::Info& info) { want(action::NotifyUser{info.text}); }
  // From now on the coordinator's patience counts, and it began with the join.
  void heard(const command::KeepAlive& keep_alive) {
    state_.keep_alive = keep_alive;
    state_.last_tick = now_;
    state_.pulse_at = std::max(state_.pulse_at, state_.joined_at);
    want(action::NotifyUser{keep_alive.text});
  }
  // Each answers one Resume, and was true when that was sent.
  void heard(const command::Continue&) {
    if (state_.resumes.empty()) return;
    MonoTime asked_at = state_.resumes.front();
    state_.resumes.pop_front();
    state_.awaits_continue = false;
    state_.unreported.reset();
    if (!hosts_with_lease()) state_.pulse_at = std::max(state_.pulse_at, asked_at);
    if (state_.asks_since) {
      if (asked_at < *state_.asks_since) return;
      state_.asks_since.reset();
      want(action::NotifyUser{"the run goes on with this node"});
    }
    post_failure();
  }
  // The coordinator has gone without a round; none of what it knew is lost, since this node is as
  // it was before it came here.
  void heard(const command::Moved& moved) {
    if (config_.may_move() && state_.is_joined && !state_.wants_round) return follow(moved);
    bool may_go = may_change_host(state_, config_) && state_.is_joined && state_.wants_round;
    if (!may_go) return;
    state_.sent_to = moved.to;
    cut_off(moved.why + ", at " + to_string(moved.to) + "; joining there");
    state_.is_own_host = false;
    if (state_.contact_before) state_.contact = std::exchange(state_.contact_before, std::nullopt);
    state_.was_in_round_until = state_.was_in_round_until_before;
  }
  // With workers, which go on.
  void follow(const command::Moved& moved) {
    std::size_t number = endpoint_of(moved.to, config_);
    if (number >= config_.node.settings.endpoints.size()) return;
    want(action::NotifyUser{moved.why + ", at " + to_string(moved.to) + "; going on there"});
    want(action::Disconnect{});
    state_.asked_at.reset();
    state_.link = Link::Connecting;
    state_.connecting_since = now_;
    state_.attempts = 0;
    state_.is_first_try = true;
    ++state_.connection;
    go_to_endpoint(number);
    want(action::Connect{.node = node_id(state_, config_),
                         .connection = state_.connection,
                         .place = state_.place,
                         .timeout = try_time()});
  }
  void heard(const command::Settled& settled) {
    if (state_.last && state_.last->id() == settled.round) state_.last->after.clear();
  }
  // Its lease is over, and the others may run without it.
  void heard(const command::Dropped& dropped) {
    if (!state_.is_joined) return;
    cut_off("the others have given this node up: " + dropped.why, now_);
    state_.was_in_round_until.reset();
  }

  State state_;
  MonoTime now_;
  const Config& config_;
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now, const Config& config) {
  if (state.is_over) return {std::move(state), {}};
  MemberTransition transition(std::move(state), now, config);
  transition.notice_standstill();
  std::visit(transition, event);
  return std::move(transition).result();
}

std::string node_id(const State& state, const Config& config) {
  return config.name + "." + std::to_string(state.incarnation);
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

std::optional<Died> memory(const State& state, const Config& config) {
  request::Left left;
  note_known(state, left);
  if (left.knows.by.empty()) return std::nullopt;
  return Died{.name = config.name,
              .knows = std::move(left.knows),
              .nodes = left.nodes,
              .after = std::move(left.after),
              .seen_of = std::move(left.seen_of)};
}

std::optional<UnsaidLeft> unsaid_left(const State& state, const Config& config, MonoTime now,
                                      bool host_goes) {
  bool is_said = !host_goes && !state.is_over && state.is_joined && state.link == Link::Up;
  if (is_said || state.has_verdict || !has_stand_ins(state)) return std::nullopt;
  UnsaidLeft unsaid{.message = {.run = config.run,
                                .node = node_id(state, config),
                                .request = left_at_end(state, now),
                                .connection = state.connection},
                    .places = {}};
  auto& left = std::get<request::Left>(unsaid.message.request);
  if (state.has_ended) {
    left.why = "has ended, since the rendezvous that it hosted failed";
  } else if (state.leaving) {
    left.why = state.leaving->why;
  }
  for (const Place& place : places_of(state, config)) {
    if (!place.own) unsaid.places.push_back(place.at);
  }
  return unsaid;
}

bool has_turn(const State& state, const Config& config) {
  return state.last && config.stand_in_port != 0 &&
         std::ranges::find(state.last->stand_ins, config.name, &StandIn::name) !=
             state.last->stand_ins.end();
}

MonoTime next_tick(const State& state, const Config& config) {
  if (state.is_over) return MonoTime::max();
  if (!state.is_joined && state.link != Link::Up) return MonoTime::max();
  MonoTime beat = state.last_tick + heartbeat_interval(state, config);
  if (!state.is_joined) return beat;
  MonoTime reads = reads_until(state, config);
  Duration limit = contact_limit(state, config);
  MonoTime judged =
      state.asks_since ? *state.asks_since + limit : std::max(state.pulse_at + limit, reads);
  if (auto mute = mute_at(state, config)) judged = std::min(judged, std::max(*mute, reads));
  return std::min(beat, judged);
}

Duration lease(const State& state, const Config& config) {
  Policy policy = policy_of(state, config);
  return policy.lease() - policy.silence_limit() / 10;
}

Duration contact_limit(const State& state, const Config& config) {
  if (!has_workers(state)) return lease(state, config);
  return policy_of(state, config).silence_limit() / 2;
}

}  // namespace ddprun::rendezvous::member
