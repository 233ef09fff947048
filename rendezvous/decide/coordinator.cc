// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/coordinator.h"

#include <algorithm>
#include <utility>

#include "rendezvous/decide/admission.h"
#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/losses.h"
#include "rendezvous/decide/requests.h"
#include "rendezvous/decide/rounds.h"
#include "rendezvous/decide/takeover.h"
#include "rendezvous/decide/waiting_text.h"
#include "store/base/seconds.h"

namespace ddprun::rendezvous::coordinator {
namespace {

// People are told what is waited for after so long, and again when it changes or so much later.
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kRepeat = std::chrono::seconds(30);
// A start of a run that has gone on for longer is not ended because of an earlier one.
constexpr Duration kNewStart = std::chrono::seconds(60);

// One step: hands what has happened to the part that it concerns.
class CoordinatorTransition {
 public:
  CoordinatorTransition(State state, Now now) : state_(std::move(state)), now_(now.mono) {
    forgive_own_silence();
  }
  CoordinatorTransition(const CoordinatorTransition&) = delete;
  CoordinatorTransition& operator=(const CoordinatorTransition&) = delete;

  Step result() && {
    admission_.admit_orphans();
    if (is_over(state_) && !state_.next_run.empty()) admission_.begin_next_run();
    return {std::move(state_), out_.take()};
  }

  void operator()(const event::Arrived& event) {
    out_.answer_on(event.connection);
    auto node = state_.nodes.find(event.node);
    if (const auto* join = std::get_if<request::Join>(&event.request)) {
      if (node == state_.nodes.end()) admission_.node_joined(event.node, *join, event.connection);
      return;
    }
    if (const auto* foreign = std::get_if<request::Foreign>(&event.request)) {
      return out_.send_on(event.node, event.connection,
                          command::Refuse{"it speaks version " + std::to_string(foreign->version) +
                                          " of the rendezvous protocol, and the run version " +
                                          std::to_string(kProtocolVersion)});
    }
    if (node == state_.nodes.end()) return outsider_spoke(event);
    member_spoke(event, node->second);
  }

  void operator()(const event::Tick&) {
    requests_.conclude_if_due();
    if (now_ >= state_.next_look) losses_.suspect_silent_nodes();
    if (now_ >= state_.contacts.next_look) watch_contacts();
    if (state_.phase == Phase::Gathering && !state_.nodes.empty()) {
      rounds_.form_if_due();
      if (rounds_.end_if_too_few()) return;
    }
    takeover_.give_up_if_due();
    if (state_.newcomers_due && now_ >= *state_.newcomers_due) rounds_.take_in_newcomers();
    report_waiting();
  }

  void operator()(const event::MarkRead& event) {
    losses_.note_sent(event.number);
    admission_.judge_silent_nodes(event.number);
  }

  void operator()(const event::HostLeaves& event) {
    admission_.forget_next_run(event.why);
    if (state_.phase == Phase::Ended) return;
    state_.is_left_to_others = can_leave_to_others(state_);
    if (state_.is_left_to_others) return;
    rounds_.end({.exit_code = command::kExitRendezvous, .why = event.why, .signal = event.signal});
  }

  void operator()(const event::HandOver& event) {
    if (state_.phase == Phase::Ended || !can_leave_to_others(state_)) return;
    state_.is_left_to_others = true;
    if (state_.phase == Phase::Running)
      rounds_.stop(
          {.cause = RoundEndCause::NodeLost, .loss = LossKind::Rendezvous, .why = event.why});
  }

  void operator()(const event::OtherStartFound& event) {
    if (state_.phase == Phase::Ended) return;
    std::string other = "a run with this id was begun before and goes on at " + to_string(event.at);
    bool is_new = state_.begun_at && now_ < *state_.begun_at + kNewStart;
    if (is_new) {
      return rounds_.end({.exit_code = command::kExitRendezvous,
                          .why = other + ": this one ends, so that the two do not train at once; "
                                         "end that one first, or choose another --rdzv-id"});
    }
    if (now_ < state_.told_of_other_at + kRepeat) return;
    state_.told_of_other_at = now_;
    for (const auto& [id, node] : state_.nodes)
      out_.send(id, command::Info{other + ", beside this one: end one of the two"});
  }

  // That one has trained meanwhile, and this one's workers were held: it is this one that ends. The
  // workers end by their leases, since these are renewed no more; then it is said why.
  void operator()(const event::DoubtSettled& event) {
    if (!is_in_doubt(state_, now_)) return;
    if (!event.other_start_at) {
      state_.contacts.doubted_until = MonoTime::min();
      return watch_contacts();
    }
    if (state_.phase != Phase::Gathering) return;
    rounds_.end({.exit_code = command::kExitRendezvous,
                 .why = "the host of this run stood still for " +
                        seconds_text(state_.contacts.stood_still) +
                        ", and a run with this id was begun meanwhile and goes on at " +
                        to_string(*event.other_start_at) +
                        ": this one ends, so that the two do not train at once; start these nodes "
                        "again, and they join that one"});
  }

  void operator()(const event::StacksWanted& event) {
    ask_for_stacks(state_, out_, event.rank, now_);
  }

  void operator()(const event::BundleWanted& event) { ask(state_, out_, event.target, now_); }

  void operator()(const event::PaceSeen& event) { state_.pace = event.pace; }

  void operator()(const event::SaysToAll& event) {
    for (const auto& [id, node] : state_.nodes) out_.send(id, command::Info{event.text});
  }

  void operator()(const event::GivesWay& event) {
    if (!may_give_way(state_, now_)) return;
    command::Moved moved{.to = event.to, .why = event.why};
    for (auto& [id, node] : std::exchange(state_.nodes, {})) {
      out_.send_on(id, node.connection, moved);
    }
    for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
      out_.send_on(id, contender.connection, moved);
    }
    state_.next_run.clear();
    state_.former.awaited.reset();
    state_.moving.has_given_way = true;
  }

 private:
  // Others may begin a round when the leases of the nodes that are here are over.
  void watch_contacts() {
    state_.contacts.next_look = MonoTime::max();
    look_at_contacts(state_, now_);
    if (!is_alone(state_, now_)) {
      requests_.answer_those_who_asked();
      if (may_move(state_)) rounds_.end_if_all_succeeded();
      return;
    }
    if (!must_stop_alone(state_, now_)) return;
    rounds_.stop({.cause = RoundEndCause::NodeLost,
                  .loss = LossKind::CutOff,
                  .why = "too few of the nodes of this round are heard, and the others may go on "
                         "without this one"});
  }

  void member_spoke(const event::Arrived& event, Node& node) {
    bool is_old = event.connection < node.connection;
    if (event.connection > node.connection) {
      // What was sent on the connection before may not have arrived.
      out_.forget(event.node, node.connection);
      node.connection = event.connection;
      node.away_at.reset();
      bool was_deaf = std::exchange(node.delivery, {}).is_given_up;
      if (was_deaf) out_.add(action::Acquit{event.node});
    }
    // It may be back on another connection already.
    bool is_lost = std::holds_alternative<request::Lost>(event.request);
    if (is_lost && is_old) return;
    // Its workers may run by now, and the answer would pass for one to a later question.
    if (is_old && std::holds_alternative<request::Resume>(event.request)) return;
    if (!is_lost) {
      node.seen = now_;
      node.has_spoken = true;
    }
    const auto* heartbeat = std::get_if<request::Heartbeat>(&event.request);
    if (heartbeat != nullptr && heartbeat->heard && !is_old)
      losses_.note_heard(event.node, node, *heartbeat->heard);
    requests_.handle(event.node, node, event.request);
  }

  // One that waits, for the next run or for a --node-rank, may be gone, or have news.
  void outsider_spoke(const event::Arrived& event) {
    if (const auto* resume = std::get_if<request::Resume>(&event.request)) {
      return takeover_.node_resumed(event.node, *resume, event.connection);
    }
    if (const auto* heartbeat = std::get_if<request::Heartbeat>(&event.request)) {
      if (heartbeat->died) admission_.note_died(event.node, *heartbeat->died);
      return;
    }
    const auto* left = std::get_if<request::Left>(&event.request);
    bool is_gone = left != nullptr || std::holds_alternative<request::Lost>(event.request) ||
                   std::holds_alternative<request::Leaving>(event.request);
    if (!is_gone) return;
    admission_.drop_waiting(event.node, event.connection, left != nullptr);
    out_.forget(event.node, event.connection);
    if (left != nullptr) takeover_.node_left(event.node, *left);
  }

  // Should this process have been stopped for a while, no other node was silent meanwhile, or late.
  void forgive_own_silence() {
    Duration slept = now_ - state_.last_turn;
    if (!state_.nodes.empty() && slept > 2 * state_.policy.keep_alive_interval) {
      for (auto& [id, node] : state_.nodes) {
        node.seen += slept;
        if (node.leaves_by) *node.leaves_by += slept;
      }
      if (state_.former.awaited) state_.former.awaited->until += slept;
      state_.gathering_since += slept;
      note_standstill(state_, slept, now_);
    }
    state_.last_turn = now_;
  }

  void report_waiting() {
    bool waits = state_.phase == Phase::Gathering || state_.phase == Phase::Stopping;
    if (!waits || now_ - state_.gathering_since < kPatience) return;
    std::string what = waiting_text(state_);
    std::string beside = beside_text(state_);
    if (what + beside == state_.last_told && now_ - state_.last_told_at < kRepeat) return;
    state_.last_told = what + beside;
    state_.last_told_at = now_;
    command::Info info{what + time_left_text(state_, now_) + beside};
    for (const auto& [id, node] : state_.nodes) {
      if (node.is_down) out_.send(id, info);
    }
  }

  State state_;
  MonoTime now_;
  Outgoing out_{state_.nodes};
  Rounds rounds_{state_, out_, now_};
  Losses losses_{state_, out_, now_, rounds_};
  Admission admission_{state_, out_, now_, rounds_, losses_};
  Requests requests_{state_, out_, now_, rounds_, admission_};
  Takeover takeover_{state_, out_, now_, rounds_, admission_, requests_};
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  CoordinatorTransition transition(std::move(state), now);
  std::visit([&](const auto& each) { transition(each); }, event);
  return std::move(transition).result();
}

std::optional<MonoTime> deadline(const State& state) {
  if (state.nodes.empty()) return std::nullopt;
  MonoTime due = state.next_look;
  // Who leaves the run to others forms nothing any more, whatever is due.
  bool may_begin = state.phase == Phase::Gathering && !state.is_left_to_others;
  bool waits_for_call =
      may_begin && state.last_call && may_form(state) && may_go_on(state, state.last_turn);
  if (waits_for_call) due = std::min(due, *state.last_call);
  if (state.former.awaited) due = std::min(due, state.former.awaited->until);
  if (state.newcomers_due) due = std::min(due, *state.newcomers_due);
  if (state.inspection) due = std::min(due, state.inspection->until);
  due = std::min(due, state.contacts.next_look);
  bool waits_for_fence = state.phase == Phase::Gathering && fence(state) > state.last_turn;
  if (waits_for_fence) due = std::min(due, fence(state));
  bool is_short =
      may_begin && state.nodes.size() < static_cast<std::size_t>(state.settings.min_nodes);
  if (is_short && state.shortage && !state.shortage->is_announced)
    due = std::min(due, state.shortage->settled_at);
  return due;
}

bool is_handed_over(const State& state) {
  return state.is_left_to_others && state.phase != Phase::Ended && state.up_count == 0 &&
         std::ranges::none_of(state.nodes,
                              [](const auto& node) { return node.second.join.is_host; });
}

bool has_successor(const State& state) {
  return std::ranges::any_of(state.nodes, [](const auto& node) {
    return !node.second.join.is_host && !node.second.leaves_by;
  });
}

bool is_over(const State& state) {
  return state.nodes.empty() && state.contenders.empty();
}

}  // namespace ddprun::rendezvous::coordinator
