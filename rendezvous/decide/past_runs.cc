// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/past_runs.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "rendezvous/decide/former.h"
#include "rendezvous/decide/quorum.h"

namespace ddprun::rendezvous::runs {
namespace {

// So often it looks whether it stood still, while that counts.
constexpr Duration kLook = std::chrono::seconds(1);

// What start of a run a node says that it is of; empty where it does not say so.
std::string run_uuid_of(const coordinator::Event& event) {
  const auto* arrived = std::get_if<coordinator::event::Arrived>(&event);
  if (arrived == nullptr) return "";
  if (const auto* join = std::get_if<request::Join>(&arrived->request)) return join->run_uuid;
  const auto* resume = std::get_if<request::Resume>(&arrived->request);
  return resume == nullptr ? "" : resume->join.run_uuid;
}

bool has_several_endpoints(const coordinator::Event& event) {
  const auto* arrived = std::get_if<coordinator::event::Arrived>(&event);
  if (arrived == nullptr) return false;
  if (const auto* join = std::get_if<request::Join>(&arrived->request))
    return !join->settings.endpoints.empty();
  const auto* resume = std::get_if<request::Resume>(&arrived->request);
  return resume != nullptr && !resume->join.settings.endpoints.empty();
}

// The nodes of this round may have another host, so that the end of their leases here says nothing.
bool may_go_on_elsewhere(const State& state, const coordinator::Former& former) {
  return !state.is_daemon && !former.by.empty();
}

// Others of the round in a run file may have gone on elsewhere.
void begin_after(coordinator::State& run, coordinator::Former former, MonoTime now) {
  bool is_known = !run.quorum.bodies.empty();
  if (!is_known && !former.by.empty() && former.round && !former.names.empty()) {
    run.quorum.bodies.push_back({.id = former.id(),
                                 .nodes = former.nodes,
                                 .names = {former.names.begin(), former.names.end()}});
    for (const std::string& name : former.left) {
      run.quorum.gone[name] = {.knows = former.id(),
                               .nodes = former.nodes,
                               .at = now,
                               .why = "had left",
                               .loss = LossKind::Left};
    }
  }
  run.former.begin(std::move(former));
}

}  // namespace

void PastRuns::forgive_own_pause() {
  Duration slept = now_ - state_.last_turn;
  if (slept > 2 * kLook) {
    for (auto& [name, former] : state_.formers) former.until += slept;
  }
  state_.last_turn = now_;
}

void PastRuns::clear_what_is_old() {
  for (auto former = state_.formers.begin(); former != state_.formers.end();) {
    if (former->second.until > now_ || may_go_on_elsewhere(state_, former->second)) {
      ++former;
      continue;
    }
    if (state_.filed.erase(former->first) > 0)
      actions_.emplace_back(action::DropRunFile{former->first});
    former = state_.formers.erase(former);
  }
  std::erase_if(state_.quorum_times, [this](const auto& known) {
    bool is_old = known.second + kQuorumAge <= now_;
    if (is_old) state_.quorums.erase(known.first);
    return is_old;
  });
  while (!state_.verdicts.empty() && state_.verdicts.front().at + kVerdictAge <= now_) {
    state_.verdicts.pop_front();
  }
  while (!state_.pasts.empty() && state_.pasts.front().at + kVerdictAge <= now_) {
    state_.pasts.pop_front();
  }
}

coordinator::State PastRuns::begin(const std::string& name, const coordinator::Event& event) {
  coordinator::State run;
  if (auto known = state_.quorums.extract(name); !known.empty()) {
    run.quorum = std::move(known.mapped());
    state_.quorum_times.erase(name);
  }
  run.quorum.self = state_.name;
  run.is_away_from_endpoint = !state_.is_daemon && state_.order > 0;
  run.is_guarded = !name.empty() && name == state_.guarded_run;
  auto former = state_.formers.extract(name);
  if (!former.empty()) begin_after(run, std::move(former.mapped()), now_);
  if (state_.is_daemon) {
    run.moving.daemon = state_.name;
    if (!has_several_endpoints(event)) run.quorum = {};
  }
  if (!run.quorum.self.empty()) run.next_round = round_after_all(name);
  const std::string uuid = run_uuid_of(event);
  for (const Past& past : state_.pasts) {
    if (past.run != name) continue;
    run.former.past_rounds[past.run_uuid] = past.round;
    if (past.run_uuid != uuid) continue;
    run.churn = past.churn;
    run.lost_rounds = past.lost_rounds;
  }
  return run;
}

// After the rounds of all earlier starts here: number and coordinator tell each round from all
// others, also for a guardian that speaks late.
std::uint64_t PastRuns::round_after_all(const std::string& name) const {
  std::uint64_t next = 0;
  for (const Verdict& verdict : state_.verdicts) {
    if (verdict.run == name) next = std::max(next, verdict.next_round);
  }
  for (const Past& past : state_.pasts) {
    if (past.run == name) next = std::max(next, past.round + 1);
  }
  return next;
}

void PastRuns::remember(const std::string& name, coordinator::action::Over over) {
  if (state_.verdicts.size() >= kMaxVerdicts) state_.verdicts.pop_front();
  state_.verdicts.push_back({.run = name,
                             .run_uuid = std::move(over.run_uuid),
                             .next_round = over.next_round,
                             .end = std::move(over.verdict),
                             .at = now_});
}

void PastRuns::forget(const std::string& name) {
  auto run = state_.runs.extract(name);
  if (run.mapped().has_formed && run.mapped().phase != coordinator::Phase::Ended) {
    if (state_.pasts.size() >= kMaxVerdicts) state_.pasts.pop_front();
    state_.pasts.push_back({.run = name,
                            .run_uuid = run.mapped().run_uuid,
                            .round = run.mapped().round,
                            .at = now_,
                            .churn = std::move(run.mapped().churn),
                            .lost_rounds = run.mapped().lost_rounds});
  }
  const coordinator::Quorum& quorum = run.mapped().quorum;
  bool may_go_on = run.mapped().phase != coordinator::Phase::Ended &&
                   (!quorum.bodies.empty() || !quorum.gone.empty() || quorum.seen);
  if (may_go_on && state_.quorums.size() < kMaxRuns) {
    state_.quorums[name] = std::move(run.mapped().quorum);
    if (state_.is_daemon) state_.quorum_times[name] = now_;
  }
  bool was_stopped = run.mapped().phase == coordinator::Phase::Stopping;
  const auto& stop = run.mapped().last_stop;
  std::optional<coordinator::Former> former =
      run.mapped().former.take(was_stopped && stop ? &*stop : nullptr);
  // Where a node hosts, that file may be all that fresh nodes find of a run which goes on
  // elsewhere.
  bool goes_on_elsewhere = run.mapped().moving.has_given_way && !state_.is_daemon;
  if (former && state_.formers.size() < kMaxRuns) {
    state_.formers[name] = std::move(*former);
  } else if (goes_on_elsewhere) {
    state_.filed.erase(name);
  } else if (state_.filed.erase(name) > 0) {
    actions_.emplace_back(action::DropRunFile{name});
  }
}

MonoTime past_runs_due(const State& state) {
  MonoTime due = MonoTime::max();
  if (!state.verdicts.empty()) due = std::min(due, state.verdicts.front().at + kVerdictAge);
  for (const auto& [name, former] : state.formers) {
    if (!may_go_on_elsewhere(state, former)) due = std::min(due, former.until);
  }
  if (!state.formers.empty()) due = std::min(due, state.last_turn + kLook);
  return due;
}

}  // namespace ddprun::rendezvous::runs
