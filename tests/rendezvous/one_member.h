// SPDX-License-Identifier: BSD-3-Clause
//
// Plays one node of a run, without its shell, for unit tests.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "rendezvous/decide/member.h"
#include "tests/rendezvous/one_run.h"

namespace ddprun::rendezvous::test {

struct OneMember {
  member::Config config{};
  member::State state{};
  Now now{.mono = MonoTime(std::chrono::hours(1))};
  std::vector<member::Action> actions{};  // of the last step

  void on(const member::Event& event) {
    auto next = member::step(std::move(state), event, now, config);
    state = std::move(next.state);
    actions = std::move(next.actions);
  }
  template <class OneAction>
  const OneAction* wanted() const {
    return first_of<OneAction>(actions);
  }
};

}  // namespace ddprun::rendezvous::test
