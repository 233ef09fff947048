// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/runs.h"

#include <algorithm>
#include <utility>

#include "store/base/count.h"
#include "store/base/variant.h"

namespace ddprun::rendezvous::runs {
namespace {

// So many runs that wait beside another one are named to it.
constexpr std::size_t kMaxNamed = 3;

std::string describe(const std::string& name, const coordinator::State& run) {
  return "run '" + name + "' (" + count_of(run.nodes.size(), "node") + ")";
}

bool is_farewell(const Order& order) {
  return std::holds_alternative<order::Refuse>(order) ||
         std::holds_alternative<order::Dropped>(order) || std::holds_alternative<order::End>(order);
}

// The last words of a node that cannot hear any more.
bool is_last_word(const Request& request) {
  return std::holds_alternative<request::Lost>(request) ||
         std::holds_alternative<request::Leave>(request);
}

// One turn: the state being changed and the actions being collected.
class Turn {
 public:
  Turn(State state, Now now) : state_(std::move(state)), now_(now) { clear_what_is_old(); }

  Step result() && { return {std::move(state_), std::move(actions_)}; }

  void operator()(const event::Arrived& event) {
    const Letter& letter = event.letter;
    if (letter.run == state_.only_run && is_last_word(letter.request) &&
        state_.gone.size() < kMaxGone) {
      state_.gone.insert(letter.node.substr(0, letter.node.rfind('.')));  // without its life
    }
    if (const auto* join = std::get_if<request::Join>(&letter.request)) {
      if (is_turned_away(letter, *join)) return;
    } else if (!state_.runs.contains(letter.run)) {
      if (is_last_word(letter.request)) actions_.emplace_back(action::Forget{letter.node});
      bool is_foreign = std::holds_alternative<request::Foreign>(letter.request);
      if (!is_foreign) return;
    }
    step(letter.run, coordinator::event::Arrived{letter.node, letter.request});
  }

  void operator()(const event::Tick&) {
    std::vector<std::string> due;
    for (const auto& [name, run] : state_.runs) {
      if (coordinator::deadline(run).value_or(MonoTime::max()) <= now_.mono) due.push_back(name);
    }
    for (const std::string& name : due) {
      state_.runs[name].beside = who_waits_beside(name);
      step(name, coordinator::event::Tick{});
    }
  }

  void operator()(const event::HostLeaves& event) {
    state_.why_leaving = event.why;
    std::vector<std::string> names;
    for (const auto& [name, run] : state_.runs) names.push_back(name);
    for (const std::string& name : names)
      step(name, coordinator::event::HostLeaves{event.why, event.signal});
  }

 private:
  // What no coordinator of one run can judge.
  bool is_turned_away(const Letter& letter, const request::Join& join) {
    auto verdict = std::ranges::find_if(state_.verdicts, [&](const Verdict& each) {
      bool is_late = join.incarnation.empty() && letter.run == state_.only_run;
      return each.run == letter.run && (each.incarnation == join.incarnation || is_late);
    });
    if (verdict != state_.verdicts.end()) {
      say_farewell(letter.node, verdict->end);
      return true;
    }
    std::string why = why_refused(letter.run, join);
    if (why.empty()) return false;
    say_farewell(letter.node, order::Refuse{why});
    return true;
  }

  std::string why_refused(const std::string& name, const request::Join& join) const {
    if (!state_.why_leaving.empty()) return state_.why_leaving;
    if (state_.runs.contains(name)) return "";
    if (state_.runs.size() >= kMaxRuns) {
      return "there are " + std::to_string(state_.runs.size()) + " runs here already";
    }
    if (!join.settings.master) return "";
    auto other = std::ranges::find_if(state_.runs, [](const auto& run) {
      return run.second.settings.master.has_value() && !run.second.nodes.empty();
    });
    if (other == state_.runs.end()) return "";
    return "it has --rdzv-id=" + name + ", not " + other->first +
           ", which is what the nodes have that meet here by the static backend";
  }

  // Other runs that a node of this one may have been meant for: a slip in --rdzv-id.
  std::string who_waits_beside(const std::string& name) const {
    const coordinator::State& here = state_.runs.at(name);
    if (here.phase != coordinator::Phase::Gathering) return "";
    std::string text;
    std::size_t named = 0;
    for (const auto& [other, run] : state_.runs) {
      bool waits = run.phase == coordinator::Phase::Gathering && !run.nodes.empty();
      if (other == name || !waits || run.settings != here.settings) continue;
      text += (text.empty() ? "" : ", ") + describe(other, run);
      if (++named == kMaxNamed) break;
    }
    return text;
  }

  void step(const std::string& name, const coordinator::Event& event) {
    coordinator::State& run = state_.runs[name];
    coordinator::Step next = coordinator::step(std::move(run), event, now_);
    run = std::move(next.state);
    bool is_emptied = false;
    for (coordinator::Action& action : next.actions) {
      if (auto* over = std::get_if<coordinator::action::Over>(&action)) {
        remember(name, std::move(*over));
        continue;
      }
      if (auto* forget = std::get_if<coordinator::action::Forget>(&action)) {
        actions_.emplace_back(std::move(*forget));
        continue;
      }
      auto& send = std::get<coordinator::action::Send>(action);
      bool begins_round = std::holds_alternative<order::Round>(send.order);
      if (begins_round && run.settings.master && !std::exchange(is_emptied, true)) {
        actions_.emplace_back(action::EmptyCommonSpace{});
      }
      if (is_farewell(send.order) && !run.nodes.contains(send.node)) {
        say_farewell(send.node, std::move(send.order));
      } else {
        actions_.emplace_back(std::move(send));
      }
    }
    if (coordinator::is_over(run)) state_.runs.erase(name);
  }

  void remember(const std::string& name, coordinator::action::Over over) {
    if (state_.verdicts.size() >= kMaxVerdicts) state_.verdicts.pop_front();
    state_.verdicts.push_back({.run = name,
                               .incarnation = std::move(over.incarnation),
                               .end = std::move(over.verdict),
                               .at = now_.mono});
  }

  void say_farewell(const std::string& node, Order order) {
    actions_.emplace_back(action::Send{node, std::move(order)});
    state_.farewells.push_back({node, now_.mono});
  }

  void clear_what_is_old() {
    while (!state_.verdicts.empty() && state_.verdicts.front().at + kVerdictAge <= now_.mono) {
      state_.verdicts.pop_front();
    }
    while (!state_.farewells.empty() &&
           (state_.farewells.size() > kMaxLastOrders ||
            state_.farewells.front().at + kLastOrdersAge <= now_.mono)) {
      actions_.emplace_back(action::Forget{std::move(state_.farewells.front().node)});
      state_.farewells.pop_front();
    }
  }

  State state_;
  Now now_;
  std::vector<Action> actions_;
};

}  // namespace

Step step(State state, const Event& event, Now now) {
  Turn turn(std::move(state), now);
  std::visit(turn, event);
  return std::move(turn).result();
}

std::optional<MonoTime> deadline(const State& state) {
  MonoTime due = MonoTime::max();
  for (const auto& [name, run] : state.runs)
    due = std::min(due, coordinator::deadline(run).value_or(due));
  if (!state.verdicts.empty()) due = std::min(due, state.verdicts.front().at + kVerdictAge);
  if (!state.farewells.empty()) due = std::min(due, state.farewells.front().at + kLastOrdersAge);
  if (due == MonoTime::max()) return std::nullopt;
  return due;
}

bool has_ended(const State& state) {
  return std::ranges::any_of(state.verdicts, [&](const Verdict& verdict) {
    return !state.only_run.empty() && verdict.run == state.only_run;
  });
}

std::string who_is_here(const State& state) {
  std::string text;
  for (const auto& [name, run] : state.runs) {
    text += (text.empty() ? "" : ", ") + describe(name, run);
  }
  return text;
}

}  // namespace ddprun::rendezvous::runs
