// SPDX-License-Identifier: BSD-3-Clause
//
// Plays the coordinators of one place, where the nodes of a run "job" come, for unit tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/decide/runs.h"

namespace ddprun::rendezvous::test {

// The first of this kind; nullptr: there is none.
template <class OneAction, class Actions>
const OneAction* first_of(const Actions& actions) {
  for (const auto& action : actions) {
    if (const auto* found = std::get_if<OneAction>(&action)) return found;
  }
  return nullptr;
}

struct OneRun {
  runs::State state{};
  Now now{.mono = MonoTime(std::chrono::hours(1))};
  std::vector<runs::action::Send> sent{};  // by the last event, as the knocks
  std::vector<request::Knock> knocks{};
  std::vector<Endpoint> looks{};      // likewise: where it looks back
  std::vector<RunFile> kept_files{};  // likewise
  std::set<std::string> texts{};      // for people, by all events
  int acquitted = 0;                  // likewise
  int dropped_files = 0;              // likewise

  void on(const runs::Event& event) {
    sent.clear();
    knocks.clear();
    looks.clear();
    kept_files.clear();
    step(event);
  }
  void says(const std::string& node, Request request) {
    on(runs::event::Arrived{{.run = "job", .node = node, .request = std::move(request)}});
  }

  // How many commands of this kind were sent by the last event.
  template <class OneCommand>
  std::size_t told() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        sent, [](const auto& send) { return std::holds_alternative<OneCommand>(send.command); }));
  }
  const coordinator::State& run() const { return state.runs.at("job"); }

  // Fills in what a node says that comes from `round`, which had so many nodes, and that saw the
  // coordinator `of` so long ago.
  static void comes_from(request::Join& join, const RoundId& round, int nodes, Duration age,
                         const std::string& of) {
    join.previous_rank = join.host[0] - 'a';
    join.next_round = round.number + 1;
    join.round_by = round.by;
    join.run_uuid = "a.0";
    join.previous_nodes = nodes;
    join.is_back = join.was_in_round = true;
    join.seen_age = age;
    join.seen_of = of;
  }

 private:
  void step(const runs::Event& event) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    for (auto& action : next.actions) {
      if (auto* send = std::get_if<runs::action::Send>(&action)) {
        sent.push_back(*send);
        if (auto* info = std::get_if<command::Info>(&send->command)) texts.insert(info->text);
      }
      if (auto* knock = std::get_if<runs::action::Knock>(&action)) knocks.push_back(knock->knock);
      if (auto* look = std::get_if<runs::action::LookBack>(&action)) looks.push_back(look->at);
      if (auto* keep = std::get_if<runs::action::KeepRunFile>(&action))
        kept_files.push_back(keep->file);
      if (std::holds_alternative<runs::action::Acquit>(action)) ++acquitted;
      if (std::holds_alternative<runs::action::DropRunFile>(action)) ++dropped_files;
      if (auto* mark = std::get_if<runs::action::Mark>(&action))
        step(runs::event::MarkRead{.run = mark->run, .number = mark->number});
    }
  }
};

}  // namespace ddprun::rendezvous::test
