// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/member.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "rendezvous/decide/connector.h"
#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/member_places.h"
#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/pulse.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::member {
namespace {

constexpr Duration kPatience = std::chrono::seconds(2);  // until people are told of a wait
constexpr Duration kRepeat = std::chrono::seconds(20);

// The workers of a node that leaves are dead so long before the others count on it.
constexpr Duration kLeaveLead = std::chrono::seconds(1);

constexpr Duration kKnockPeriod = std::chrono::seconds(1);

// One step: the state being changed and the actions being collected.
class MemberTransition {
 public:
  MemberTransition(State state, Now now, const Config& config)
      : state_(std::move(state)), now_(now.mono), config_(config) {}
  MemberTransition(const MemberTransition&) = delete;
  MemberTransition& operator=(const MemberTransition&) = delete;

  // Having stood still, it may have been given up; or everybody stood still.  It asks before
  // anything else, whatever has happened.
  void notice_standstill() {
    if (!has_stood_still(state_, config_, now_)) return;
    Duration since_tick = now_ - std::exchange(state_.last_tick, now_);
    state_.asks_since = now_;
    state_.has_outslept_lease = now_ >= state_.lease_end;
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

  void operator()(const event::WorkerFailed& event) {
    if (!state_.is_joined || !state_.last) return;  // the agent has been told to stop already
    state_.workers = Workers::Stopping;
    // The guardian has ended it while this agent stood still: no worker has failed.
    bool is_lease_over =
        now_ >= state_.lease_end || (state_.asks_since && state_.has_outslept_lease);
    if (is_lease_over && event.failure.status.signal == SIGKILL) {
      return cut_off(state_.asks_since
                         ? "this node stood still past the end of its lease"
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

  // The coordinator of a host that leaves ends as well: it says the rest when it does.
  void operator()(const event::WorkersGone&) {
    bool may_say = state_.is_leaving && state_.is_joined && state_.link == Link::Up;
    if (!may_say || state_.is_own_host) return;
    post(left_at_end(state_, now_));
    state_.workers = Workers::Down;
    state_.is_joined = false;
    state_.has_left = true;
  }

  void operator()(const event::Finished&) {
    if (state_.is_joined) post(left_at_end(state_, now_));
    state_.workers = Workers::Down;
    state_.is_over = true;
  }

  // Of a first round the run file speaks, and nodes that know of none do not wait for it for ever.
  void operator()(const event::Formed& event) {
    if (has_stand_ins(state_)) state_.formed = event.round;
  }

  void operator()(const event::Connected& event) {
    if (state_.link == Link::Down) return want(action::Disconnect{});  // of no use any more
    const std::string before = state_.coordinator;
    bool knows_us = event.coordinator == before;
    bool is_same = knows_us || (event.is_at_daemon && state_.is_at_daemon);
    state_.link = Link::Up;
    if (is_unreached(state_.place)) state_.unreached.reset();
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
      if (!is_sent_on) want(action::NotifyUser{"reached " + where() + " again"});
    } else if (!state_.told.empty() && !state_.is_own_host) {
      want(action::NotifyUser{"reached " + where()});
    }
    state_.told.clear();
    if (state_.is_joined) {
      if (!is_same) {
        return cut_off(coordinator::agent_text(event.coordinator, "another node") + " hosts " +
                       where() + " now, and " + coordinator::agent_text(before, "the one") +
                       " that did is gone with what it knew of this round");
      }
      // Another coordinator may have gone on without this node, and this one would not know of it:
      // workers must not run beside those.
      bool is_late =
          now_ - state_.pulse_at >= lease(state_, config_) && !waits_for_verdict(state_, config_);
      if (!knows_us && is_late)
        return cut_off(where() + " was away for longer than the lease of this node");
      return resume();
    }
    state_.pulse_at = now_;
    if (state_.wants_round) join();
  }

  void operator()(const event::ConnectFailed& event) {
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
  void operator()(const event::ConnectionLost& event) {
    if (state_.is_joined) {
      want(action::NotifyUser{"lost the connection to " + where() +
                              ", where the nodes meet: " + event.why + "; connecting again"});
      state_.asked_at.reset();
      want(action::Disconnect{});
      state_.link = Link::Connecting;
      state_.connecting_since = now_;
      if (is_unheard_for_long(state_, config_, now_) && !has_workers(state_))
        return give_up_unheard();
      return connector_.reconnect(event.is_mute);
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
    ++state_.heard;
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

  // An agent that was ending, or its guardian, may have had workers when this node joined.
  void operator()(const event::DiedSeen& event) {
    if (!waits_for_round(state_) || event.died == state_.died) return;
    state_.died = event.died;
    state_.is_died_due = true;
    if (state_.asked_at) state_.is_echo_due = true;
    look();
  }

  void operator()(const event::Tick& event) {
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
        return cut_off("this node stood still, and " + where() + " does not answer", now_);
    } else if (now_ >= std::max(loses_contact_at(state_, config_), reads_until(state_, config_))) {
      std::string silence = seconds_text(now_ - state_.pulse_at);
      if (waits_for_verdict(state_, config_))
        return give_up(where() + ", where the nodes meet, has been silent for " + silence +
                       ", since the workers of this node succeeded");
      return cut_off(hosts_with_lease(state_, config_)
                         ? "this node, which hosts the run, has heard too few of the others for " +
                               silence + ", and they may go on without it"
                         : where() + ", where the nodes meet, has been silent for " + silence);
    }
    if (is_up) look_at_host();
  }

 private:
  bool is_unreached(const std::optional<Endpoint>& place) const {
    return state_.unreached && state_.unreached->endpoint == endpoint_of(place, config_);
  }

  // Where a run goes on whose first host's machine is gone, nothing that a new node can reach says.
  std::string elsewhere_hint(Duration waited) const {
    bool may_be_elsewhere = config_.stand_in_port != 0 && !config_.may_move() &&
                            !config_.has_registry && !state_.has_joined;
    if (!may_be_elsewhere || waited < kRepeat) return "";
    return "; if the run goes on without that machine, its host says in its log where (\"this node "
           "hosts the run at HOST:PORT\"): start this node with that --rdzv-endpoint";
  }

  // It has just been there in vain.
  bool is_sent_back(const Endpoint& to) const {
    return is_unreached(to) && now_ - state_.unreached->until < kRepeat;
  }

  void note_unreached(const std::string& why) {
    if (!config_.may_move()) return;
    std::optional<Unreached>& unreached = state_.unreached;
    if (!is_unreached(state_.place) || now_ - unreached->until >= kRepeat)
      unreached = Unreached{.endpoint = endpoint_of(state_.place, config_), .since = now_};
    unreached->why = why;
    unreached->until = now_;
  }

  void look_at_host() {
    auto due = mute_at(state_, config_);
    if (!due || now_ < std::max(*due, reads_until(state_, config_))) return look();
    state_.muted_at = now_;
    (*this)(event::ConnectionLost{
        .why = "it has not answered for " + seconds_text(now_ - *state_.asked_at),
        .is_mute = true});
  }

  void give_up(std::string why) {
    state_.link = Link::Down;
    state_.is_over = true;
    if (!config_.is_spare || state_.last) return want(action::NotifyFailure{std::move(why)});
    want(action::NotifyEnd{{.why = "this spare node was not needed: " + why}});
  }
  void give_up_unheard() {
    give_up("no coordinator at " + where() +
            ", where the nodes meet, has given a sign of life for " +
            seconds_text(now_ - *state_.unheard_since));
  }

  // Its own coordinator goes on as long as this agent does; its workers only as long as enough
  // other nodes see that.
  void note_heard(MonoTime heard_at) {
    // A lease from before the standstill, which is over by now, would end the workers that are
    // held.
    if (state_.asks_since && heard_at + lease(state_, config_) <= now_) return;
    if (heard_at > state_.pulse_at) state_.confirmed_at = now_;
    state_.pulse_at = std::max(state_.pulse_at, heard_at);
    // A command that is under way may be from before; the answer is not.
    if (state_.asks_since && heard_at >= *state_.asks_since && state_.resumes.empty()) resume();
  }

  void note_pulse(const std::string& pulse, MonoTime asked_at) {
    state_.pulse_time = std::strtoll(pulse.c_str(), nullptr, 10);
    if (state_.is_joined) note_contact();
    if (std::exchange(state_.is_echo_due, false)) look();
    bool renews = !pulse.ends_with(kAloneMark) && !hosts_with_lease(state_, config_) &&
                  !state_.awaits_continue;
    // Whether this node still counts, only the answer to its question says.
    if (!renews || state_.asks_since) return;
    state_.pulse_at = std::max(state_.pulse_at, asked_at);
    post_failure();
  }

  // One at a time, so that it is known when the one began that is answered.
  void look() {
    if (state_.asked_at) return;
    state_.asked_at = now_;
    want(action::Heartbeat{message(heartbeat(state_, config_))});
    state_.is_died_due = false;
  }

  // A host looks whether the run is elsewhere as well.
  void knock_if_due() {
    bool may_be_elsewhere = has_stand_ins(state_) || config_.has_registry;
    bool is_due = state_.is_own_host && may_be_elsewhere && state_.link == Link::Up &&
                  now_ >= state_.knocked_at + kKnockPeriod;
    if (!is_due) return;
    state_.knocked_at = now_;
    action::Knock knock{places_to_knock_at(state_, config_)};
    if (!knock.places.empty()) want(std::move(knock));
  }

  Contact contact() const { return {.at = now_, .of = state_.coordinator}; }
  void note_contact() { state_.seen.note(contact(), config_.may_move()); }

  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  std::string where() const { return member::where(state_, config_); }

  Message message(Request request) const {
    return {.run = config_.run,
            .node = node_id(state_, config_),
            .request = std::move(request),
            .connection = state_.connection};
  }
  void post(Request request) { want(action::Post{message(std::move(request))}); }

  // Once after each contact: an agent that is always late must stop its workers all the same.
  void note_late_tick() {
    bool was_noted = state_.woke_at && *state_.woke_at > state_.pulse_at;
    if (is_tick_late(state_, config_, now_) && !was_noted) state_.woke_at = now_;
  }

  void join() {
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
    post(request::Resume{.join = join_request(state_, config_, now_),
                         .workers = state_.workers,
                         .failed = state_.failed});
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

  void resume_later(const event::ConnectFailed& event) {
    bool is_gone = event.is_refused && !state_.is_at_daemon;
    if (event.is_final || is_gone) {
      return cut_off(where() + ", where the nodes meet, was lost: " + event.why);
    }
    connector_.reconnect_later();
  }

  // The coordinator has given this node up, or will have when its lease is over: its workers must
  // end before that, and it comes back as another node.
  void cut_off(const std::string& why, std::optional<MonoTime> kill_by = std::nullopt,
               Duration after = {}) {
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
      want(action::NotifyStop{stop_of_last(state_, why), state_.cut_off_lease});
    } else if (state_.workers == Workers::Succeeded && !state_.has_ended && !state_.is_leaving) {
      // Its workers have done their part, but the others may begin a round without knowing.
      want(action::NotifyStop{stop_of_last(state_, why)});
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

  // A node without workers may go to and fro between places where nobody lets it in.
  void tell_of_cut(const std::string& why) {
    if (why == state_.told_of_cut && now_ - state_.told_of_cut_at < kRepeat) return;
    state_.told_of_cut = why;
    state_.told_of_cut_at = now_;
    want(action::NotifyUser{why});
  }

  // Where the lease of the workers ends now, if that has changed.
  void renew_lease() {
    if (!has_workers(state_)) state_.cut_off_lease.reset();
    MonoTime end = end_of_lease(state_, config_);
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
    note_stand_ins(round.stand_ins);
    // The coordinator has heard what it answers, and counts this node's silence from then at the
    // earliest.
    if (!hosts_with_lease(state_, config_))
      state_.pulse_at = std::max({state_.pulse_at, state_.joined_at, state_.ready_at});
    want(action::NotifyRound{round});
    if (round.by.empty()) return;
    note_contact();
    state_.seen.has_round();
    state_.was_in_round_until_before.reset();
    state_.awaits_continue = false;
    if (!round.after.empty()) look();  // so that it is settled soon
  }
  void heard(const command::Inspect& inspect) {
    if (has_workers_of(state_, inspect.round)) want(action::NotifyInspect{inspect});
  }
  void heard(const command::TakeStacks& take) {
    if (has_workers_of(state_, take.round)) want(action::NotifyTakeStacks{take});
  }
  // Whatever its workers do.
  void heard(const command::TakeBundle& take) {
    if (state_.is_joined) want(action::NotifyTakeBundle{take});
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
    bool may_leave = standby.is_outside && state_.is_joined && state_.wants_round;
    if (!may_leave) return;
    state_.is_joined = false;
    state_.has_joined = state_.had_joined_before;
    take_back_join();
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
    state_.seen.has_answered();
    if (!hosts_with_lease(state_, config_)) state_.pulse_at = std::max(state_.pulse_at, asked_at);
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
    if (!state_.is_joined) return;
    std::string why = moved.why + ", at " + to_string(moved.to);
    Duration after{};
    if (is_sent_back(moved.to)) {
      const Duration tried = now_ - state_.unreached->since;
      why += ", which this node cannot reach (" + state_.unreached->why + ")";
      if (state_.wants_round && tried >= config_.patience(state_.last.has_value())) {
        state_.is_joined = false;
        want(action::Disconnect{});
        return give_up(why + "; tried for " + seconds_text(tried));
      }
      after = connector_.pause_before_going_back(state_.unreached->sent_back++);
    }
    if (config_.may_move() && !state_.wants_round) return follow(moved.to, why, after);
    if (!may_change_host(state_, config_) || !state_.wants_round) return;
    state_.sent_to = moved.to;
    cut_off(why + "; joining there", std::nullopt, after);
    state_.is_own_host = false;
    take_back_join();
  }
  // It is as it was before it came here.
  void take_back_join() {
    state_.seen.take_back_join();
    state_.was_in_round_until = state_.was_in_round_until_before;
  }
  // With workers, which go on.
  void follow(const Endpoint& to, const std::string& why, Duration after) {
    std::size_t number = endpoint_of(to, config_);
    if (number >= config_.node.settings.endpoints.size()) return;
    tell_of_cut(why + "; going on there");
    want(action::Disconnect{});
    state_.asked_at.reset();
    connector_.go_to_endpoint(number, after);
  }
  void heard(const command::StandIns& told) {
    if (state_.is_joined && state_.wants_round) note_stand_ins(told.stand_ins);
  }
  void heard(const command::Settled& settled) {
    if (state_.last && state_.last->id() == settled.round) state_.last->after.clear();
  }
  void note_stand_ins(const std::vector<StandIn>& stand_ins) {
    state_.stand_ins = stand_ins;
    state_.host_at.reset();
    if (!state_.is_own_host) state_.host_at = state_.place;
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
  Connector connector_{state_, actions_, now_, config_};
};

}  // namespace

Step step(State state, const Event& event, Now now, const Config& config) {
  if (state.is_over) return {std::move(state), {}};
  MemberTransition transition(std::move(state), now, config);
  transition.notice_standstill();
  std::visit([&](const auto& each) { transition(each); }, event);
  return std::move(transition).result();
}

}  // namespace ddprun::rendezvous::member
