// SPDX-License-Identifier: BSD-3-Clause
//
// What is kept of the runs that have no coordinator here at present: how they ended, which rounds
// they had, and whose workers may still live.  The run that begins next under the same id needs it,
// and so do nodes that were away.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/decide/coordinator.h"
#include "rendezvous/decide/runs.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::runs {

// For one step.  What it is given outlives it.
class PastRuns {
 public:
  PastRuns(State& state, std::vector<Action>& actions, MonoTime now)
      : state_(state), actions_(actions), now_(now) {}

  // Should this process have been stopped for a while, so were perhaps those it waits for.
  void forgive_own_pause();
  void clear_what_is_old();

  // Begins a run with what is known of it; `event` is the first that happens to it.  The nodes of a
  // start that has lost them all come one by one.
  coordinator::State begin(const std::string& name, const coordinator::Event& event);

  // The run has ended.
  void remember(const std::string& name, coordinator::action::Over over);
  // No node is left in the run, and no worker of its own lives.
  void forget(const std::string& name);

 private:
  std::uint64_t round_after_all(const std::string& name) const;

  State& state_;
  std::vector<Action>& actions_;
  MonoTime now_;
};

// When something of this is too old; MonoTime::max(): never.
MonoTime past_runs_due(const State& state);

}  // namespace ddprun::rendezvous::runs
