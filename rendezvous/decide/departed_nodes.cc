// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/departed_nodes.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace ddprun::rendezvous::runs {

void DepartedNodes::clear_what_is_old() {
  while (!state_.departed.empty() && (state_.departed.size() > kMaxDeparted ||
                                      state_.departed.front().at + kLastCommandAge <= now_)) {
    Departed& departed = state_.departed.front();
    actions_.emplace_back(action::Forget{std::move(departed.node), departed.connection});
    state_.departed.pop_front();
  }
  while (!state_.given_up.empty() && state_.given_up.front().at + kGivenUpAge <= now_)
    acquit_oldest();
  while (!state_.early.empty() && state_.early.front().at + kLastCommandAge <= now_) {
    state_.early.pop_front();
  }
}

void DepartedNodes::send_last(const std::string& node, std::uint64_t connection, Command command) {
  actions_.emplace_back(action::Send{node, std::move(command), connection});
  state_.departed.push_back({.node = node, .connection = connection, .at = now_});
}

void DepartedNodes::note_given_up(const std::string& run, const std::string& node) {
  if (state_.given_up.size() >= kMaxDeparted) acquit_oldest();
  state_.given_up.push_back({.node = node, .at = now_, .run = run});
}

// Its connections are long gone.
void DepartedNodes::acquit_oldest() {
  actions_.emplace_back(action::Acquit{std::move(state_.given_up.front().node)});
  state_.given_up.pop_front();
}

void DepartedNodes::acquit_those_of(const std::string& run) {
  std::erase_if(state_.given_up, [&](GivenUp& given_up) {
    if (given_up.run != run) return false;
    actions_.emplace_back(action::Acquit{std::move(given_up.node)});
    return true;
  });
}

void DepartedNodes::note_early(const Message& message) {
  if (state_.early.size() >= kMaxEarly) state_.early.pop_front();
  state_.early.push_back({.run = message.run,
                          .node = message.node,
                          .left = std::get<request::Left>(message.request),
                          .at = now_});
}

bool DepartedNodes::has_left_early(const Message& message) {
  bool has_left = std::ranges::any_of(state_.early, [&](const Early& early) {
    return early.run == message.run && early.node == message.node;
  });
  if (has_left) actions_.emplace_back(action::Forget{message.node, message.connection});
  return has_left;
}

MonoTime departed_nodes_due(const State& state) {
  MonoTime due = MonoTime::max();
  if (!state.given_up.empty()) due = std::min(due, state.given_up.front().at + kGivenUpAge);
  if (!state.departed.empty()) due = std::min(due, state.departed.front().at + kLastCommandAge);
  return due;
}

}  // namespace ddprun::rendezvous::runs
