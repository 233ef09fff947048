// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/member_places.h"
#include "rendezvous/decide/member_transition.h"
#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/pulse.h"
#include "store/base/count.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);  // until people are told of a wait

// The workers of a node that leaves are dead so long before the others count on it.
constexpr Duration kLeaveLead = std::chrono::seconds(1);

constexpr Duration kKnockPeriod = std::chrono::seconds(1);

// The run may have another host than the endpoint, and neither the user nor a registry says where.
bool may_be_hosted_elsewhere(const Config& config) {
  return config.stand_in_port != 0 && !config.may_move() && !config.has_registry;
}

}  // namespace

void MemberTransition::notice_standstill() {
  if (!has_stood_still(state_, config_, now_)) return;
  Duration since_tick = now_ - std::exchange(state_.last_tick, now_);
  state_.asks_since = now_;
  state_.has_outslept_lease = now_ >= state_.lease_end;
  want(action::NotifyUser{"this node stood still for " + seconds_text(since_tick) +
                          "; asking whether the run goes on with it"});
  if (state_.link == Link::Up && !state_.is_own_host) resume();
}

Step MemberTransition::result() && {
  renew_lease();
  return {std::move(state_), std::move(actions_)};
}

void MemberTransition::operator()(const event::RoundWanted& event) {
  state_.wants_round = true;
  state_.workers = Workers::Down;
  state_.failed.reset();
  state_.store_port = event.store_port;
  if (may_be_hosted_elsewhere(config_) && !state_.last && !state_.has_joined)
    state_.known_before = event.known;
  switch (state_.link) {
    case Link::Down:
      return connector_.connect();
    case Link::Connecting:
      return;
    case Link::Up:
      if (!state_.is_joined) return join();
      state_.ready_at = now_;
      return post(request::Ready{.round = state_.last ? state_.last->number : 0,
                                 .store_port = event.store_port});
  }
}

void MemberTransition::operator()(const event::WorkerFailed& event) {
  if (!state_.is_joined || !state_.last) return;  // the agent has been told to stop already
  state_.workers = Workers::Stopping;
  // The guardian has ended it while this agent stood still: no worker has failed.
  bool is_lease_over = now_ >= state_.lease_end || (state_.asks_since && state_.has_outslept_lease);
  if (is_lease_over && event.failure.status.signal == SIGKILL) {
    return cut_off_by_lease();
  }
  state_.failed = request::Failed{.round = state_.last->number,
                                  .failure = event.failure,
                                  .is_final = event.is_final,
                                  .wait = event.wait};
  state_.is_failure_posted = false;
  post_failure();
}

void MemberTransition::operator()(const event::WorkersInspected& event) {
  if (!state_.is_joined || !state_.last) return;
  post(request::Found{.round = state_.last->number, .findings = event.findings});
}

// Beside the heartbeats in turn, which say it again: it is one without the rest of them.
void MemberTransition::operator()(const event::WorkersUp& event) {
  if (!has_workers_of(state_, event.round)) return;
  state_.up_round = event.round;
  post(request::Heartbeat{.up = event.round});
}

void MemberTransition::operator()(const event::WorkersSucceeded&) {
  state_.workers = Workers::Succeeded;
  if (state_.is_joined && state_.last) post(request::Succeeded{.round = state_.last->number});
}

void MemberTransition::operator()(const event::Leaving& event) {
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

// The coordinator of a host that leaves ends as well: it says the rest when it does.
void MemberTransition::operator()(const event::WorkersGone&) {
  bool may_say = state_.is_leaving && state_.is_joined && state_.link == Link::Up;
  if (!may_say || state_.is_own_host) return;
  post(left_at_end(state_, now_));
  state_.workers = Workers::Down;
  state_.is_joined = false;
  state_.has_left = true;
}

void MemberTransition::operator()(const event::Finished&) {
  if (state_.is_joined) post(left_at_end(state_, now_));
  state_.workers = Workers::Down;
  state_.is_over = true;
}

// Of a first round the run file speaks, and nodes that know of none do not wait for it for ever.
void MemberTransition::operator()(const event::Formed& event) {
  if (has_stand_ins(state_)) state_.formed = event.round;
}

void MemberTransition::operator()(const event::Connected& event) {
  if (state_.link == Link::Down) return want(action::Disconnect{});  // of no use any more
  const std::string before = state_.coordinator;
  bool knows_us = event.coordinator == before;
  bool is_same = knows_us || (event.is_at_daemon && state_.is_at_daemon);
  state_.link = Link::Up;
  state_.found_at = event.host_at;
  if (is_unreached(state_.place)) state_.unreached.reset();
  state_.missed_at.erase(endpoint_of(state_.place, config_));
  state_.connected_at = now_;
  state_.heard = 0;
  state_.address = event.address;
  state_.addresses = event.addresses;
  state_.died = event.died;
  state_.is_died_due = false;
  state_.coordinator = event.coordinator;
  state_.is_at_daemon = event.is_at_daemon;
  state_.is_own_host = event.is_own_host;
  state_.pulse.clear();  // another coordinator's, maybe, by another clock
  state_.pulse_time = 0;
  state_.sent_to.reset();
  state_.asked_at.reset();
  state_.resumes.clear();
  state_.last_tick = now_;
  bool is_sent_on = state_.unreached && state_.unreached->sent_back > 0;
  if (state_.is_joined) {
    bool is_another = config_.may_move() && endpoint_of(state_.place, config_) != state_.pulse_from;
    const std::string how = is_another ? ", to which the run may have moved" : " again";
    if (!is_sent_on) want(action::NotifyUser{"reached " + where() + how});
  } else if (!state_.told.empty() && !state_.is_own_host) {
    want(action::NotifyUser{"reached " + where()});
  }
  state_.told.clear();
  if (state_.is_joined) {
    if (!is_same) {
      return cut_off(LossKind::Rendezvous,
                     coordinator::agent_text(event.coordinator, "another node") + " hosts " +
                         where() + " now, and " + coordinator::agent_text(before, "the one") +
                         " that did is gone with what it knew of this round");
    }
    // Another coordinator may have gone on without this node, and this one would not know of it:
    // workers must not run beside those.
    bool is_late =
        now_ - state_.pulse_at >= lease(state_, config_) && !waits_for_verdict(state_, config_);
    if (!knows_us && is_late) return cut_off_by_lease();
    return resume();
  }
  state_.pulse_at = now_;
  state_.pulse_from = endpoint_of(state_.place, config_);
  if (!state_.wants_round) return;
  if (is_where_known(state_) && std::exchange(state_.told_found, where()) != where()) {
    want(action::NotifyUser{"looking for the run at " + where() + " (" +
                            coordinator::agent_text(event.coordinator, "its host") +
                            "), where an agent of this machine knew it before"});
  }
  join();
}

void MemberTransition::operator()(const event::ConnectFailed& event) {
  if (state_.link == Link::Down) return;
  note_unreached(event.why);
  if (state_.is_joined) return resume_later(event);
  Duration waited = now_ - state_.connecting_since;
  Duration patience = config_.patience(state_.last.has_value());
  if (event.is_final || waited >= patience) {
    state_.link = Link::Down;
    state_.is_over = true;
    if (event.is_final) return want(action::NotifyFailure{event.why});
    return give_up(event.why + "; tried for " + seconds_text(waited) + elsewhere_hint(waited));
  }
  // Of several places each has a reason of its own, in turn.
  bool is_repeated = now_ - state_.told_at >= kRepeat;
  bool is_due = is_repeated || state_.told.find(event.why + '\n') == std::string::npos;
  if (waited >= kPatience && is_due) {
    if (is_repeated) state_.told.clear();
    if (state_.told.empty()) state_.told_at = now_;
    state_.told += event.why + '\n';
    want(action::NotifyUser{event.why + "; trying for " + seconds_text(patience - waited) +
                            " more" + elsewhere_hint(waited)});
  }
  // The first word to people, and the last attempt, are not late.
  Duration left =
      waited < kPatience && patience > kPatience ? kPatience - waited : patience - waited;
  connector_.try_next_place(left);
}

// A broken connection says nothing of the run: it is made again, and the workers go on meanwhile.
void MemberTransition::operator()(const event::ConnectionLost& event) {
  if (state_.is_joined) {
    want(action::NotifyUser{"lost the connection to " + meeting() + ": " + event.why +
                            "; connecting again"});
    state_.asked_at.reset();
    state_.was_reset = event.is_reset;
    want(action::Disconnect{});
    state_.link = Link::Connecting;
    state_.connecting_since = now_;
    if (is_unheard_for_long(state_, config_, now_) && !has_workers(state_))
      return give_up_unheard();
    return connector_.reconnect(event.is_mute);
  }
  cut_off(LossKind::Rendezvous, meeting() + ", was lost: " + event.why);
}

// The others find no process at the endpoint, and begin anew without this node when its lease is
// over.
void MemberTransition::operator()(const event::HostFailed& event) {
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

void MemberTransition::operator()(const event::Heard& event) {
  ++state_.heard;
  // What answers there could say these for ever.
  bool is_sign = !std::holds_alternative<command::Info>(event.command) &&
                 !std::holds_alternative<command::Moved>(event.command);
  if (is_sign) state_.unheard_since.reset();
  std::visit([&](const auto& command) { heard(command); }, event.command);
}

void MemberTransition::operator()(const event::PulseSeen& event) {
  if (!state_.asked_at) return;
  MonoTime asked_at = *std::exchange(state_.asked_at, std::nullopt);
  bool is_first = state_.pulse.empty();
  bool is_news = std::exchange(state_.pulse, event.pulse) != event.pulse;
  if (is_news && !is_first) state_.unheard_since.reset();
  if (is_news) note_pulse(event.pulse, asked_at);
  // Where answers are slow, no time is lost between them.
  if (state_.is_joined && now_ - asked_at >= heartbeat_interval(state_, config_)) look();
}

// An agent that was ending, or its guardian, may have had workers when this node joined.
void MemberTransition::operator()(const event::DiedSeen& event) {
  if (!waits_for_round(state_) || event.died == state_.died) return;
  state_.died = event.died;
  state_.is_died_due = true;
  if (state_.asked_at) state_.is_echo_due = true;
  look();
}

void MemberTransition::operator()(const event::Tick& event) {
  note_late_tick();
  state_.last_tick = now_;
  if (hosts_with_lease(state_, config_) && event.heard_at) note_heard(*event.heard_at);
  // No host is asked, and no node counts on this one; or no node goes on while it stands still.
  if (!state_.is_joined || is_above_lease(state_, config_)) state_.pulse_at = now_;
  if (waits_outside(state_)) return look_at_host();
  if (!state_.is_joined) return;
  knock_if_due();
  bool is_up = state_.link == Link::Up;
  if (auto until = asks_until(state_, config_)) {
    if (now_ >= *until)
      return cut_off(LossKind::CutOff, "this node stood still, and " + where() + " does not answer",
                     now_);
  } else if (now_ >= std::max(loses_contact_at(state_, config_), reads_until(state_, config_))) {
    std::string silence = seconds_text(now_ - state_.pulse_at);
    if (waits_for_verdict(state_, config_))
      return give_up(meeting() + ", has been silent for " + silence +
                     ", since the workers of this node succeeded");
    if (!hosts_with_lease(state_, config_))
      return cut_off(LossKind::Rendezvous, silence_text(state_, config_, silence));
    return cut_off(LossKind::CutOff,
                   "this node, which hosts the run, has heard too few of the others for " +
                       silence + ", and they may go on without it");
  }
  if (is_up) look_at_host();
}

bool MemberTransition::is_unreached(const std::optional<Endpoint>& place) const {
  if (!state_.unreached) return false;
  const std::optional<Endpoint>& at = state_.unreached->at;
  return config_.may_move() ? endpoint_of(at, config_) == endpoint_of(place, config_) : at == place;
}

std::string MemberTransition::elsewhere_hint(Duration waited) const {
  if (!may_be_hosted_elsewhere(config_) || state_.has_joined || waited < kRepeat) return "";
  std::string hint;
  if (looks_where_known(state_)) {
    hint = "; nor is the run where an agent of this machine knew it (" +
           count_of(state_.known_before.at.size(), "place") + ")";
  }
  return hint +
         "; if the run goes on without that machine, its host says in its log where (\"this node "
         "hosts the run at HOST:PORT\"): start this node with that --rdzv-endpoint";
}

void MemberTransition::note_unreached(const std::string& why) {
  // Without several endpoints there are places where nobody is to be yet.
  bool is_sent = state_.sent_to && state_.place == state_.sent_to;
  if (!config_.may_move() && !is_sent) return;
  if (config_.may_move()) state_.missed_at[endpoint_of(state_.place, config_)] = now_;
  std::optional<Unreached>& unreached = state_.unreached;
  if (!is_unreached(state_.place) || now_ - unreached->until >= kRepeat)
    unreached = Unreached{.at = state_.place, .since = now_};
  unreached->why = why;
  unreached->until = now_;
}

void MemberTransition::cut_off_by_lease() {
  if (state_.asks_since)
    return cut_off(LossKind::CutOff, "this node stood still past the end of its lease");
  cut_off(LossKind::Rendezvous, config_.may_move()
                                    ? "nothing was heard from " + heard_last_at(state_, config_) +
                                          " for longer than the lease of this node"
                                    : where() + " was away for longer than the lease of this node");
}

void MemberTransition::look_at_host() {
  auto due = mute_at(state_, config_);
  if (!due || now_ < std::max(*due, reads_until(state_, config_))) return look();
  state_.muted_at = now_;
  (*this)(event::ConnectionLost{
      .why = "it has not answered for " + seconds_text(now_ - *state_.asked_at), .is_mute = true});
}

void MemberTransition::give_up(std::string why) {
  state_.link = Link::Down;
  state_.is_over = true;
  if (!config_.is_spare || state_.last) return want(action::NotifyFailure{std::move(why)});
  want(action::NotifyEnd{{.why = "this spare node was not needed: " + why}});
}

void MemberTransition::give_up_unheard() {
  give_up("no coordinator at " + meeting() + ", has given a sign of life for " +
          seconds_text(now_ - *state_.unheard_since));
}

void MemberTransition::note_heard(MonoTime heard_at) {
  // A lease from before the standstill, which is over by now, would end the workers that are
  // held.
  if (state_.asks_since && heard_at + lease(state_, config_) <= now_) return;
  if (heard_at > state_.pulse_at) state_.confirmed_at = now_;
  state_.pulse_at = std::max(state_.pulse_at, heard_at);
  // A command that is under way may be from before; the answer is not.
  if (state_.asks_since && heard_at >= *state_.asks_since && state_.resumes.empty()) resume();
}

void MemberTransition::note_pulse(const std::string& pulse, MonoTime asked_at) {
  state_.pulse_time = std::strtoll(pulse.c_str(), nullptr, 10);
  if (state_.is_joined) note_contact();
  if (std::exchange(state_.is_echo_due, false)) look();
  bool renews =
      !pulse.ends_with(kAloneMark) && !hosts_with_lease(state_, config_) && !state_.awaits_continue;
  // Whether this node still counts, only the answer to its question says.
  if (!renews || state_.asks_since) return;
  state_.pulse_at = std::max(state_.pulse_at, asked_at);
  state_.pulse_from = endpoint_of(state_.place, config_);
  post_failure();
}

void MemberTransition::look() {
  if (state_.asked_at) return;
  state_.asked_at = now_;
  want(action::Heartbeat{message(heartbeat(state_, config_))});
  state_.is_died_due = false;
}

void MemberTransition::knock_if_due() {
  bool may_be_elsewhere = has_stand_ins(state_) || config_.has_registry;
  bool is_due = state_.is_own_host && may_be_elsewhere && state_.link == Link::Up &&
                now_ >= state_.knocked_at + kKnockPeriod;
  if (!is_due) return;
  state_.knocked_at = now_;
  action::Knock knock{places_to_knock_at(state_, config_)};
  if (!knock.places.empty()) want(std::move(knock));
}

Message MemberTransition::message(Request request) const {
  return {.run = config_.run,
          .node = node_id(state_, config_),
          .request = std::move(request),
          .connection = state_.connection};
}

void MemberTransition::note_late_tick() {
  bool was_noted = state_.woke_at && *state_.woke_at > state_.pulse_at;
  if (is_tick_late(state_, config_, now_) && !was_noted) state_.woke_at = now_;
}

void MemberTransition::join() {
  if (state_.is_leaving || state_.has_ended) return;
  state_.is_joined = true;
  state_.joined_at = now_;
  if (!state_.unheard_since) state_.unheard_since = now_;
  post(join_request(state_, config_, now_));
  state_.had_joined_before = std::exchange(state_.has_joined, true);
  state_.was_in_round_until_before = std::exchange(state_.was_in_round_until, std::nullopt);
  if (!may_change_host(state_, config_)) return;  // from here on there may be later rounds
  state_.seen.note_join(contact(), config_.may_move());
  if (!has_stand_ins(state_)) return;  // nobody counts on it yet
  state_.is_echo_due = true;
  look();
}

void MemberTransition::post_failure() {
  bool has_contact = !state_.asks_since && !state_.awaits_continue &&
                     now_ - state_.pulse_at < contact_limit(state_, config_);
  if (!has_contact && !state_.is_own_host) return;
  if (state_.failed && !std::exchange(state_.is_failure_posted, true)) post(*state_.failed);
}

void MemberTransition::resume() {
  if (state_.failed) state_.failed->wait.reset();
  state_.is_failure_posted = true;  // with this
  state_.resumes.push_back(now_);
  post(request::Resume{
      .join = join_request(state_, config_, now_),
      .workers = state_.workers,
      .failed = state_.failed,
      .leaving = state_.leaving,
      .why = state_.workers == Workers::Stopping ? state_.stops_for : "",
      .loss = state_.workers == Workers::Stopping ? state_.stops_for_loss : LossKind::Other});
  if (state_.leaving) post(*state_.leaving);
  bool is_at_another = config_.may_move() && state_.seen.is_last_another(state_.coordinator);
  if (is_at_another) {  // from here on it may count on this node
    state_.awaits_continue = has_workers(state_);
    note_contact();
  } else if (!has_stand_ins(state_) || state_.is_own_host) {
    return;
  }
  state_.is_echo_due = true;  // it may have heard too little of the others
  look();
}

void MemberTransition::resume_later(const event::ConnectFailed& event) {
  // Who has reset the connection may refuse the next one as well: a firewall that is loaded anew.
  bool is_gone = event.is_refused && !state_.is_at_daemon && !state_.was_reset;
  if (event.is_final || is_gone) {
    return cut_off(LossKind::Rendezvous, meeting() + ", was lost: " + event.why);
  }
  connector_.reconnect_later();
}

void MemberTransition::cut_off(LossKind loss, const std::string& why,
                               std::optional<MonoTime> kill_by, Duration after) {
  bool was_joined = std::exchange(state_.is_joined, false);
  MonoTime lease_end = state_.pulse_at + lease(state_, config_);
  state_.woke_at.reset();
  state_.asks_since.reset();
  state_.awaits_continue = false;
  ++state_.incarnation;
  state_.connection = 0;
  state_.has_left = false;  // that may not have arrived
  want(action::Disconnect{});
  if (was_joined && state_.workers != Workers::Down) state_.was_in_round_until = lease_end;
  bool is_needed = has_workers(state_) || state_.is_leaving || state_.has_ended;
  if (is_unheard_for_long(state_, config_, now_) && !is_needed) return give_up_unheard();
  bool had_workers = has_workers(state_);
  if (had_workers && was_joined) state_.cut_off_lease = kill_by.value_or(lease_end);
  if (had_workers && state_.last) {
    state_.workers = Workers::Stopping;
    want(action::NotifyStop{stop_of_last(state_, loss, why), state_.cut_off_lease});
  } else if (state_.workers == Workers::Succeeded && !state_.has_ended && !state_.is_leaving) {
    // Its workers have done their part, but the others may begin a round without knowing.
    want(action::NotifyStop{stop_of_last(state_, loss, why)});
    want(action::NotifyWaiting{why});
  } else {
    tell_of_cut(why);
  }
  if (state_.is_leaving || state_.has_ended) {
    state_.link = Link::Down;
  } else {
    connector_.connect(after);
  }
}

void MemberTransition::tell_of_cut(const std::string& why) {
  if (why == state_.told_of_cut && now_ - state_.told_of_cut_at < kRepeat) return;
  state_.told_of_cut = why;
  state_.told_of_cut_at = now_;
  want(action::NotifyUser{why});
}

void MemberTransition::renew_lease() {
  if (!has_workers(state_)) state_.cut_off_lease.reset();
  MonoTime end = end_of_lease(state_, config_);
  if (end != std::exchange(state_.lease_end, end)) want(action::RenewLease{end});
}

Step step(State state, const Event& event, Now now, const Config& config) {
  if (state.is_over) return {std::move(state), {}};
  MemberTransition transition(std::move(state), now, config);
  transition.notice_standstill();
  std::visit([&](const auto& each) { transition(each); }, event);
  return std::move(transition).result();
}

}  // namespace ddprun::rendezvous::member
