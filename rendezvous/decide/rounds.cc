// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/rounds.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rendezvous/decide/history.h"
#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/node_id.h"
#include "rendezvous/decide/seating.h"
#include "rendezvous/decide/waiting_text.h"

namespace ddprun::rendezvous::coordinator {

namespace {

// From where the workers of these nodes may connect.  Of too many addresses the first of each node
// are the last to be left out.
std::vector<std::string> addresses_of(const std::vector<Seat>& seats) {
  constexpr std::size_t kCost = 3;  // of one beside its text
  std::vector<std::string> addresses;
  std::unordered_set<std::string_view> known;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < kMaxAddresses; ++i) {
    for (const Seat& seat : seats) {
      const std::vector<std::string>& said = seat.node->join.addresses;
      if (i >= said.size() || !known.insert(said[i]).second) continue;
      bytes += said[i].size() + kCost;
      if (bytes > kMaxPeersBytes) return addresses;
      addresses.push_back(said[i]);
    }
  }
  return addresses;
}

// To try to form a round takes the longer the more nodes there are, or have been.
constexpr std::size_t kFewNodes = 64;
constexpr Duration kTryPeriod = std::chrono::milliseconds(10);

}  // namespace

std::string preflight_text(const request::Join& join) {
  return join.host + " cannot start its workers: " + join.preflight_failure;
}

void Rounds::stop(command::Stop stop, bool is_silent) {
  if (stop.cause == RoundEndCause::NodeLost &&
      !state_.churn.makes_progress(state_.round_began, now_)) {
    return end({.exit_code = command::kExitRendezvous,
                .why = stop.why + "; losses of nodes have ended " +
                       std::to_string(kMaxShortRounds) +
                       " rounds in 10 minutes before they were 30 s old"});
  }
  note_age();
  if (is_silent) ++state_.lost_rounds;
  state_.inspection.reset();  // what stops the round before it is over is the cause of both
  state_.phase = Phase::Stopping;
  state_.newcomers_due.reset();
  state_.gathering_since = now_;
  state_.last_told.clear();
  stop.round = state_.round;
  stop.restart_count = state_.restarts.count;
  stop.max_restarts = state_.policy.max_restarts;
  for (auto& [id, node] : state_.nodes) {
    if (!node.is_member) continue;
    if (node.has_succeeded) ++state_.up_count;  // it has to come back for the next round
    node.has_succeeded = false;
    if (!node.leaves_by) out_.send(id, stop);
  }
  state_.last_stop = std::move(stop);
  form_if_due();
}

void Rounds::form_if_due() {
  if (state_.is_left_to_others) return;
  if (state_.phase == Phase::Stopping) {
    if (!may_form(state_)) return;
    if (state_.restarts.end_in_doubt)
      return end(*std::exchange(state_.restarts.end_in_doubt, std::nullopt));
    state_.phase = Phase::Gathering;
    state_.gathering_since = now_;
    if (has_enough() && may_go_on()) return form();
  }
  if (state_.phase != Phase::Gathering) return;
  if (!has_enough()) {
    state_.last_call.reset();
    if (state_.shortage && now_ >= state_.shortage->settled_at) announce_shortage();
  } else if (!may_form_now() || !may_go_on()) {
    return;
  } else if (count() >= state_.settings.max_nodes || are_all_former_back()) {
    form();
  } else if (!state_.last_call) {
    Duration timeout = state_.policy.last_call_timeout;
    if (state_.had_round) timeout = std::min(kShortLastCall, timeout);
    state_.last_call = std::max(now_ + timeout, first_round_fence(state_));
    if (state_.last_call <= now_) form();
  } else if (now_ >= *state_.last_call) {
    form();
  }
}

bool Rounds::may_try() {
  std::size_t nodes = state_.nodes.size() + state_.quorum.gone.size();
  if (nodes > kFewNodes && now_ < state_.contacts.tried_at + kTryPeriod) return false;
  state_.contacts.tried_at = now_;
  return true;
}

void Rounds::form_soon() {
  if (may_try()) return form_if_due();
  state_.next_look = std::min(state_.next_look, state_.contacts.tried_at + kTryPeriod);
}

// Those who came may have said of others what is missing.
bool Rounds::may_form_now() {
  if (may_form(state_)) return true;
  account_for_died(state_);
  return may_form(state_);
}

bool Rounds::may_go_on() {
  if (coordinator::may_go_on(state_, now_)) return true;
  account_for_died(state_);
  note_died(state_);
  return coordinator::may_go_on(state_, now_);
}

bool Rounds::are_all_former_back() const {
  return state_.were_all_former && std::ranges::any_of(state_.nodes, [](const auto& node) {
           return node.second.join.is_back;
         });
}

// As long as the first node has said nothing since it joined, all nodes must agree, and none may
// wait for a sign of it: there may be no more to it than a name.
bool Rounds::is_join_time_over() const {
  if (now_ < state_.gathering_since + state_.policy.join_timeout) return false;
  auto founder = state_.nodes.find(state_.founder);
  bool is_name = founder != state_.nodes.end() && !founder->second.has_spoken && !state_.had_round;
  auto is_over = [&](const auto& each) {
    return each.second.came_at + each.second.join.policy.join_timeout <= now_;
  };
  return !is_name || (state_.contenders.empty() && std::ranges::all_of(state_.nodes, is_over));
}

bool Rounds::end_if_too_few() {
  if (state_.phase != Phase::Gathering || state_.is_left_to_others) return false;
  if (!is_join_time_over()) return false;
  bool may_others_go_on = has_enough() && may_form(state_) && !may_go_on();
  if (has_enough() && !may_others_go_on) return false;
  announce_shortage();
  end({.exit_code = command::kExitRendezvous,
       .why = may_others_go_on ? no_majority_text(state_) : too_few_text(state_)});
  return true;
}

void Rounds::form() {
  if (!exclude_failed_nodes()) return;
  adapt_lease();
  std::vector<Seat> seats = seat_nodes(state_, now_);
  const request::Join& first = seats.front().node->join;
  std::vector<Body> from = basis_now(state_, now_).value_or(std::vector<Body>{});
  state_.round = state_.next_round++;
  command::Round round{.number = state_.round,
                       .run_uuid = state_.run_uuid,
                       .restart_count = state_.restarts.count,
                       .max_restarts = state_.policy.max_restarts,
                       .master = state_.settings.master.value_or(
                           Endpoint{.host = first.address, .port = first.store_port})};
  name_stand_ins(state_, round, seats);
  const std::string news = host_text(state_, from);
  state_.phase = Phase::Running;
  if (!state_.had_round) state_.begun_at = now_;
  state_.had_round = true;
  state_.shortage.reset();
  state_.last_refusal.clear();
  state_.has_formed = true;
  state_.has_lost_finished = false;
  state_.were_all_former = false;
  state_.round_began = now_;
  state_.newcomers_due.reset();
  state_.last_stop.reset();
  state_.last_call.reset();
  state_.restarts.failed_at.reset();
  state_.last_told.clear();
  state_.up_count = seats.size();
  if (state_.settings.master) out_.add(action::EmptyCommonSpace{addresses_of(seats)});
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    auto& [id, node, assignment] = seats[rank];
    node->is_member = true;
    node->is_down = false;
    node->is_standby = false;
    node->last_rank = static_cast<int>(rank);
    round.ranks = assignment;
    name_unsettled(round, from, *id);
    node->round = round;
    if (rank == 0 && !state_.settings.master) node->round->peers = addresses_of(seats);
    out_.send(*id, *node->round);
    // After it: a host that dies now would leave a node that knows the news and not the round.
    if (!news.empty()) out_.send(*id, command::Info{news});
  }
  for (auto& [id, node] : state_.nodes) {
    if (node.is_member) continue;
    if (!node.is_standby) stand_by(id, node);
    name_stand_ins_to(id);
  }
  note_formed(state_, std::move(from), round.id(), now_);
  keep_run_file();
}

// Of the present round, without its nodes.
RunFile Rounds::run_file() const {
  RunFile file{.run = {},
               .run_uuid = state_.run_uuid,
               .round = state_.round,
               .lease = state_.policy.lease(),
               .nodes = {}};
  if (!state_.quorum.bodies.empty()) file.by = state_.quorum.bodies.back().id.by;
  return file;
}

void Rounds::keep_run_file() {
  RunFile file = run_file();
  if (state_.moving.adopted) file.by = state_.moving.adopted->by;
  for (const auto& [id, node] : state_.nodes) {
    if (node.is_member) file.nodes.insert(name_of(id));
  }
  out_.add(action::KeepRunFile{std::move(file)});
}

// Should this process be killed while a worker here still saves, the next start needs to know who
// had left in good order: these nodes have forgotten the round.
void Rounds::note_left_in_run_file() {
  constexpr std::size_t kMostToWrite = 64;  // for each of so many nodes the file is written anew
  const Quorum& quorum = state_.quorum;
  if (quorum.bodies.empty() || !quorum.bodies.back().is_own) return;
  const Body& round = quorum.bodies.back();
  RunFile file = run_file();
  file.nodes.insert(round.names.begin(), round.names.end());
  for (const std::string& name : round.names) {
    auto gone = quorum.gone.find(name);
    if (gone != quorum.gone.end() && gone->second.knows == round.id) file.left.insert(name);
  }
  bool is_late = file.nodes.size() - file.left.size() <= kMostToWrite;
  if (is_late && !file.left.empty()) out_.add(action::KeepRunFile{std::move(file)});
}

// Nodes that can start no worker are as if they had not come.  Where too few are left, nobody is
// to wait for more: false, and the run is over.
bool Rounds::exclude_failed_nodes() {
  std::vector<std::string> failed;
  for (const auto& [id, node] : state_.nodes) {
    if (!node.join.preflight_failure.empty()) failed.push_back(id);
  }
  if (failed.empty()) return true;
  std::string why = preflight_text(state_.nodes.at(failed.front()).join);
  int able = count() - static_cast<int>(failed.size());
  if (able < state_.settings.min_nodes) {
    end({.exit_code = command::kExitPreflight, .why = why});
    return false;
  }
  for (const std::string& id : failed) turn_away(state_.nodes.extract(id));
  return true;
}

void Rounds::turn_away(std::map<std::string, Node>::node_type node) {
  const request::Join& join = node.mapped().join;
  if (join.node_rank) state_.holders.erase(*join.node_rank);
  out_.send(node.key(), command::Refuse{preflight_text(join)});
  for (const auto& [id, other] : state_.nodes)
    out_.send(id, command::Info{preflight_text(join) + "; the run goes on without it"});
}

bool Rounds::can_more_come() const {
  auto standbys =
      std::ranges::count_if(state_.nodes, [](const auto& node) { return node.second.is_standby; });
  return count() - standbys < state_.settings.max_nodes;
}

void Rounds::expect_newcomer(const std::string& id) {
  note_age();
  Duration settle = kSettleTime * (1 << std::min(state_.stops_for_newcomers, kMaxDoublings));
  MonoTime gathered = can_more_come() ? state_.newcomers_due.value_or(now_ + kGatherTime) : now_;
  state_.newcomers_due = std::max(gathered, state_.round_began + settle);
  Duration wait = *state_.newcomers_due - now_;
  if (wait > kSettleTime && !state_.former.awaited)
    out_.send(id, command::Info{newcomer_text(wait)});
  if (wait <= Duration::zero()) take_in_newcomers();
}

// What the run has cost its nodes is forgotten once a round has lasted.
void Rounds::note_age() {
  if (now_ - state_.round_began < kLongRound) return;
  state_.stops_for_newcomers = 0;
  state_.lost_rounds = 0;
}

// No worker lives: each node hears of its new lease before it starts one.
void Rounds::adapt_lease() {
  if (state_.restarts.failed_at) state_.lost_rounds = 0;
  // Another host would wait for the lease that its nodes know, and not for one that has grown
  // since.
  if (may_change_host(state_)) return;
  Policy& policy = state_.policy;
  Duration limit = policy.silence_limit() / state_.lease_factor;
  int factor = 1;
  for (int lost = 2; lost <= state_.lost_rounds && factor < kMaxLeaseFactor; ++lost) factor *= 2;
  while (factor > 1 && limit * factor > kLongestStretched) factor /= 2;
  if (factor == state_.lease_factor) return;
  policy.keep_alive_max_attempt = policy.keep_alive_max_attempt / state_.lease_factor * factor;
  state_.lease_factor = factor;
  for (auto& [id, node] : state_.nodes) {
    node.seen = now_;  // until now it went by another limit
    out_.send(id, keep_alive_of(policy, lease_text(state_)));
  }
}

void Rounds::take_in_newcomers() {
  state_.newcomers_due.reset();
  if (state_.phase != Phase::Running || state_.inspection) return;
  if (state_.former.awaited) {
    state_.newcomers_due = state_.former.awaited->until;
    const command::Info info{returning_text(state_)};
    for (const auto& [id, node] : state_.nodes) {
      if (!node.is_member && !node.is_standby) out_.send(id, info);
    }
    return;
  }
  // No other round could begin before that, and the present one goes on meanwhile.
  if (fence(state_) > now_ && !may_go_on()) {
    state_.newcomers_due = fence(state_);
    return;
  }
  std::string names;
  std::size_t count = 0;
  for (auto& [id, node] : state_.nodes) {
    if (node.is_member || node.is_standby) continue;
    if (!has_room(state_) || has_any_succeeded(state_)) {
      stand_by(id, node);
      continue;
    }
    if (++count <= 3) names += (names.empty() ? "" : ", ") + node.join.host;
  }
  if (count == 0) return;
  if (count > 3) names += " and " + std::to_string(count - 3) + " more";
  stop({.cause = RoundEndCause::NodeJoined,
        .why = names + (count == 1 ? " has joined" : " have joined")});
  ++state_.stops_for_newcomers;
}

void Rounds::stand_by(const std::string& id, Node& node) {
  node.is_standby = true;
  std::string reason = is_flapping(state_, node.join.host, now_)
                           ? "it was lost " + std::to_string(state_.policy.flap_limit) +
                                 " times in 10 minutes (flap_limit)"
                       : has_room(state_) && has_any_succeeded(state_)
                           ? "some of the nodes have finished already"
                           : "there are " + std::to_string(state_.settings.max_nodes) +
                                 " nodes, as many as --nnodes allows";
  out_.send(id, command::Standby{reason});
}

void Rounds::name_stand_ins_to(const std::string& id) {
  std::vector<StandIn> stand_ins = stand_ins_of(state_);
  if (stand_ins.empty()) return;
  out_.send(id, command::StandIns{.stand_ins = std::move(stand_ins), .run_uuid = state_.run_uuid});
}

// To the nodes that were in the last round; one that comes later has lost none.
void Rounds::announce_shortage() {
  if (!state_.shortage || std::exchange(state_.shortage->is_announced, true)) return;
  for (const auto& [id, node] : state_.nodes) {
    if (node.is_member) out_.send(id, command::Waiting{state_.shortage->why});
  }
}

void Rounds::end_if_all_succeeded() {
  if (may_move(state_) && is_alone(state_, now_)) return;  // others may go on with it
  if (state_.phase == Phase::Running && state_.up_count == 0 &&
      (!state_.former.awaited || state_.has_formed)) {
    if (has_any_succeeded(state_)) end({.exit_code = 0});
  }
}

void Rounds::end(command::End end) {
  state_.inspection.reset();
  state_.phase = Phase::Ended;
  end.failures = state_.restarts.failures;
  end.restart_count = state_.restarts.count;
  end.max_restarts = state_.policy.max_restarts;
  end.slowest = state_.pace.slowest;
  for (const auto& [id, node] : state_.nodes) out_.send(id, end);
  if (state_.had_round) out_.add(action::Over{state_.run_uuid, state_.next_round, end});
  state_.verdict = std::move(end);
  for (auto& [id, contender] : std::exchange(state_.contenders, {})) {
    out_.send_on(id, contender.connection, command::Refuse{"the run is over"});
  }
}

}  // namespace ddprun::rendezvous::coordinator
