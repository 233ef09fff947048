// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/hang.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "store/base/exit_status.h"
#include "store/base/variant.h"

namespace ddprun::agent::hang {
namespace {

using namespace std::chrono_literals;

MonoTime stacks_due(const State& state, const Config& config) {
  return state.taking_since + config.stack_limit + config.disk_patience;
}

// One transition.
class HangTransition {
 public:
  HangTransition(State& state, MonoTime now, const Config& config)
      : state_(state), now_(now), config_(config) {}

  // The workers are not looked at while a tool that reads their stacks stops them, nor while one of
  // them is being ended.
  void set_look() {
    bool is_looking = config_.timeout != Duration::zero() && !state_.running.empty() &&
                      !state_.is_taking && state_.endings.empty() && !state_.hold;
    if (!is_looking) {
      state_.look_at.reset();
    } else if (!state_.look_at) {
      state_.look_at = now_ + look_period(config_.timeout);
    }
  }

  std::vector<Action> actions() && { return std::move(actions_); }

  void operator()(const event::Started& event) {
    std::uint64_t collections = state_.collections;
    state_ = State(config_);
    state_.collections = collections;
    state_.running = event.local_ranks;
    state_.base_rank = event.base_rank;
    state_.has_other_nodes = event.has_other_nodes;
  }

  void operator()(const event::Looked& event) {
    if (!state_.look_at) return;
    state_.look_at.reset();
    auto verdict = state_.activity.look(event.samples, now_);
    if (!state_.suspicion) {
      if (!verdict) return;
      want(action::NameSilent{*verdict});
      state_.suspicion = std::move(verdict);
      return take_stacks();
    }
    state_.suspicion = std::move(verdict);
    if (!state_.suspicion) return state_.others_until.reset();  // the workers go on
    if (now_ >= *state_.others_until) end_suspect();
  }

  void operator()(const event::TimerExpired& event) {
    if (!state_.running.contains(event.local_rank) || state_.blamed.contains(event.local_rank))
      return;
    blame(event.local_rank, event.cause);
    state_.expired[event.local_rank] = event.signal == SIGKILL ? SIGABRT : event.signal;
    if (!state_.is_taking) take_stacks();
  }

  void operator()(const event::StacksTaken& event) {
    bool is_current = state_.is_taking && event.collection == state_.collections;
    if (!is_current) return;  // of workers that have been stopped meanwhile
    state_.is_taking = false;
    state_.waits = event.waits;
    state_.places = event.places;
    state_.has_python = event.has_python;
    for (const auto& [local_rank, signal] : std::exchange(state_.expired, {})) {
      if (state_.running.contains(local_rank)) end(local_rank, signal);
    }
    if (state_.suspicion && !state_.others_until) judge_suspicion();
  }

  void operator()(const event::Exited& event) {
    if (state_.running.erase(event.local_rank) == 0) return;
    state_.endings.erase(event.local_rank);
    if (!state_.hold) return;
    want(action::HoldBack{});
    release_if_over();
  }

  void operator()(const event::Stopped&) {
    state_.running.clear();
    state_.endings.clear();
    state_.expired.clear();
    state_.suspicion.reset();
    state_.others_until.reset();
    state_.is_taking = false;
    release_if_over();
  }

  void operator()(const event::Tick&) {
    if (state_.is_taking && now_ >= stacks_due(state_, config_))
      (*this)(event::StacksTaken{.collection = state_.collections});
    std::vector<int> stuck;
    for (auto& [local_rank, ending] : state_.endings) {
      if (now_ < ending.due) continue;
      if (ending.is_killed) {
        stuck.push_back(local_rank);
        continue;
      }
      ending = {.due = now_ + config_.kill_limit, .is_killed = true};
      want(action::Kill{local_rank});
    }
    for (int local_rank : stuck) {
      state_.endings.erase(local_rank);
      want(action::Abandon{local_rank});
    }
    release_if_over();
  }

 private:
  template <class OneAction>
  void want(OneAction action) {
    actions_.emplace_back(std::move(action));
  }

  void take_stacks() {
    state_.is_taking = true;
    state_.taking_since = now_;
    want(action::TakeStacks{++state_.collections});
  }

  // The stacks are taken.  An agent that knows which of its workers hangs ends that one while the
  // others wait.
  void judge_suspicion() {
    state_.suspicion = without_waiting(std::move(*state_.suspicion), state_.waits);
    if (state_.suspicion->is_clear || !state_.has_other_nodes) return end_suspect();
    // Other nodes are as slow as this one, and have begun at about the same time.
    const Duration taken = now_ - state_.taking_since;
    const Duration left = std::max(config_.stack_limit - taken, Duration::zero());
    Duration grace =
        std::min(2 * taken, left) + 2 * look_period(config_.timeout) + config_.abort_grace + 1s;
    state_.others_until = now_ + grace;
    want(action::LeaveToOthers{grace});
  }

  void end_suspect() {
    HangVerdict verdict = without_waiting(std::move(*state_.suspicion), state_.waits);
    state_.suspicion.reset();
    state_.others_until.reset();
    int local_rank = verdict.hung.front();
    // It may have ended while its stacks were taken.
    if (!state_.running.contains(local_rank) || state_.blamed.contains(local_rank)) return;
    verdict.base_rank = state_.base_rank;
    if (auto place = state_.places.find(local_rank); place != state_.places.end())
      verdict.place = place->second;
    blame(local_rank, describe(verdict), verdict.alive_at.at(local_rank));
    end(local_rank, SIGABRT);
  }

  void blame(int local_rank, std::string cause, std::optional<MonoTime> alive_at = {}) {
    state_.blamed.insert(local_rank);
    want(action::Blame{local_rank, std::move(cause), alive_at});
  }

  void end(int local_rank, int signal) {
    MonoTime kill_at = now_ + config_.abort_grace;
    // All at once: the end of the first would wake the others, which would show something else.
    bool is_for_all = signal == SIGABRT && !state_.has_python;
    if (is_for_all && !state_.hold) state_.hold = Hold{.local_rank = local_rank, .until = kill_at};
    for (int other : state_.running) {
      if (other == local_rank || is_for_all) want(action::Signal{other, signal});
    }
    state_.endings[local_rank] = {.due = kill_at};
  }

  // The hold lasts until the worker that hung has ended, and, for a while, until all have.
  void release_if_over() {
    if (!state_.hold || state_.running.contains(state_.hold->local_rank)) return;
    if (!state_.running.empty() && now_ < state_.hold->until) return;
    want(action::Release{state_.hold->local_rank});
    state_.hold.reset();
  }

  State& state_;
  MonoTime now_;
  const Config& config_;
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> step(State& state, const Event& event, MonoTime now, const Config& config) {
  HangTransition transition(state, now, config);
  std::visit(transition, event);
  transition.set_look();
  return std::move(transition).actions();
}

std::optional<MonoTime> next_tick(const State& state, const Config& config) {
  std::optional<MonoTime> next;
  auto take = [&next](MonoTime time) { next = std::min(next.value_or(time), time); };
  for (const auto& [local_rank, ending] : state.endings) take(ending.due);
  if (state.is_taking) take(stacks_due(state, config));
  if (state.hold && !state.running.contains(state.hold->local_rank)) take(state.hold->until);
  return next;
}

std::string to_string(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) {
    if (!text.empty()) text += ", ";
    text += std::visit(
        Overloaded{
            [](const action::NameSilent& silent) {
              return "name " + std::to_string(silent.verdict.silent.size()) + " silent";
            },
            [](const action::LeaveToOthers& leave) {
              auto whole = std::chrono::duration_cast<std::chrono::seconds>(leave.grace);
              return "leave to others for " + std::to_string(whole.count()) + " s";
            },
            [](const action::TakeStacks&) { return std::string("take stacks"); },
            [](const action::Blame& blame) { return "blame " + std::to_string(blame.local_rank); },
            [](const action::Signal& signal) {
              return process::signal_name(signal.signal) + " to " +
                     std::to_string(signal.local_rank);
            },
            [](const action::Kill& kill) { return "kill " + std::to_string(kill.local_rank); },
            [](const action::Abandon& stuck) {
              return "abandon " + std::to_string(stuck.local_rank);
            },
            [](const action::HoldBack&) { return std::string("hold"); },
            [](const action::Release& release) {
              return "release " + std::to_string(release.first) + " first";
            },
        },
        action);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace ddprun::agent::hang
