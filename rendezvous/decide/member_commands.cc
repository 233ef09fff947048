// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include "rendezvous/decide/member_places.h"
#include "rendezvous/decide/member_transition.h"
#include "store/base/seconds.h"
#include "store/base/text.h"

namespace ddprun::rendezvous::member {

// Of a sentence that a node carries to the next coordinator.
constexpr std::size_t kMaxWhyBytes = 1024;

bool MemberTransition::is_sent_back(const Endpoint& to) const {
  return is_unreached(to) && now_ - state_.unreached->until < kRepeat;
}

void MemberTransition::heard(const command::Round& round) {
  bool is_old = state_.last && round.number <= state_.last->number;
  // The answer to a question that is under way tells whether it still holds.
  bool is_doubtful = state_.asks_since.has_value();
  if (!state_.wants_round || !state_.is_joined || is_old || is_doubtful) return;
  state_.wants_round = false;
  state_.workers = Workers::Up;
  state_.restart_count = round.restart_count;
  state_.stops_for.clear();
  state_.stops_for_loss = LossKind::Other;
  state_.last = round;
  note_stand_ins(round.stand_ins, round.by.empty() ? "" : round.run_uuid);
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

// Also after a failure of its own, which is judged by what all nodes know: a second look asks this
// one, too.
void MemberTransition::heard(const command::Inspect& inspect) {
  const bool has_failed =
      state_.is_joined && state_.failed && state_.failed->round == inspect.round;
  if (has_failed || has_workers_of(state_, inspect.round)) want(action::NotifyInspect{inspect});
}

void MemberTransition::heard(const command::TakeStacks& take) {
  if (has_workers_of(state_, take.round)) want(action::NotifyTakeStacks{take});
}

// Whatever its workers do.
void MemberTransition::heard(const command::TakeBundle& take) {
  if (state_.is_joined) want(action::NotifyTakeBundle{take});
}

void MemberTransition::heard(const command::Stop& stop) {
  bool is_ours =
      state_.is_joined && !state_.wants_round && state_.last && state_.last->number == stop.round;
  if (!is_ours) return;
  state_.restart_count = stop.restart_count;
  state_.workers = Workers::Stopping;
  state_.failed.reset();  // that has been heard, or does not count any more
  state_.stops_for = beginning_of(why_of(stop), kMaxWhyBytes);
  state_.stops_for_loss = stop.loss;
  want(action::NotifyStop{stop});
}

void MemberTransition::heard(const command::Waiting& waiting) {
  if (state_.is_joined && state_.wants_round) want(action::NotifyWaiting{waiting.why});
}

void MemberTransition::heard(const command::End& end) {
  state_.has_verdict = true;
  if (std::exchange(state_.has_ended, true)) return;
  if (state_.workers == Workers::Up) state_.workers = Workers::Stopping;
  want(action::NotifyEnd{end});
}

void MemberTransition::heard(const command::Refuse& refuse) {
  state_.is_over = true;
  want(action::NotifyFailure{"this node was refused at " + where() + ": " + refuse.why});
}

void MemberTransition::heard(const command::Standby& standby) {
  if (standby.is_outside && is_where_known(state_)) return leave_known_place(standby.why);
  want(action::NotifyUser{"standing by: " + standby.why});
  bool may_leave = standby.is_outside && state_.is_joined && state_.wants_round;
  if (!may_leave) return;
  state_.is_joined = false;
  state_.has_joined = state_.had_joined_before;
  take_back_join();
}

// It goes on looking for the run, and no longer than if it had not been there.
void MemberTransition::leave_known_place(const std::string& why) {
  tell_of_cut(where() + ": " + why);
  want(action::Disconnect{});
  state_.is_joined = false;
  state_.has_joined = state_.had_joined_before;
  take_back_join();
  state_.asks_since.reset();
  state_.woke_at.reset();
  ++state_.incarnation;
  state_.connection = 0;
  state_.link = Link::Connecting;
  const Duration left = config_.patience(false) - (now_ - state_.connecting_since);
  connector_.try_next_place(std::max(left, Duration::zero()));
}

void MemberTransition::heard(const command::Info& info) {
  want(action::NotifyUser{info.text});
}

// From now on the coordinator's patience counts, and it began with the join.
void MemberTransition::heard(const command::KeepAlive& keep_alive) {
  state_.keep_alive = keep_alive;
  state_.last_tick = now_;
  state_.pulse_at = std::max(state_.pulse_at, state_.joined_at);
  want(action::NotifyUser{keep_alive.text});
}

// Each answers one Resume, and was true when that was sent.
void MemberTransition::heard(const command::Continue&) {
  if (state_.resumes.empty()) return;
  MonoTime asked_at = state_.resumes.front();
  state_.resumes.pop_front();
  state_.awaits_continue = false;
  state_.seen.has_answered();
  if (!hosts_with_lease(state_, config_)) {
    state_.pulse_at = std::max(state_.pulse_at, asked_at);
    state_.pulse_from = endpoint_of(state_.place, config_);
  }
  if (state_.asks_since) {
    if (asked_at < *state_.asks_since) return;
    state_.asks_since.reset();
    want(action::NotifyUser{"the run goes on with this node"});
  }
  post_failure();
}

// The coordinator has gone without a round; none of what it knew is lost, since this node is as
// it was before it came here.
void MemberTransition::heard(const command::Moved& moved) {
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
  cut_off(LossKind::Rendezvous, why + "; joining there", std::nullopt, after);
  state_.is_own_host = false;
  take_back_join();
}

void MemberTransition::take_back_join() {
  state_.seen.take_back_join();
  state_.was_in_round_until = state_.was_in_round_until_before;
}

void MemberTransition::follow(const Endpoint& to, const std::string& why, Duration after) {
  std::size_t number = endpoint_of(to, config_);
  if (number >= config_.node.settings.endpoints.size()) return;
  tell_of_cut(why + "; going on there");
  want(action::Disconnect{});
  state_.asked_at.reset();
  connector_.go_to_endpoint(number, after);
}

void MemberTransition::heard(const command::StandIns& told) {
  if (!state_.is_joined || !state_.wants_round) return;
  bool says_start = !told.run_uuid.empty() || !state_.last;
  note_stand_ins(told.stand_ins, says_start ? told.run_uuid : state_.last->run_uuid);
}

void MemberTransition::heard(const command::Settled& settled) {
  if (state_.last && state_.last->id() == settled.round) state_.last->after.clear();
}

void MemberTransition::note_stand_ins(const std::vector<StandIn>& stand_ins,
                                      const std::string& run_uuid) {
  state_.stand_ins = stand_ins;
  state_.stand_ins_of = run_uuid;
  state_.host_at.reset();
  if (!state_.is_own_host) state_.host_at = state_.place;
  state_.host_name = state_.coordinator;
}

// Its lease is over, and the others may run without it.
void MemberTransition::heard(const command::Dropped& dropped) {
  if (!state_.is_joined) return;
  cut_off(LossKind::CutOff, "the others have given this node up: " + dropped.why, now_);
  state_.was_in_round_until.reset();
}

}  // namespace ddprun::rendezvous::member
