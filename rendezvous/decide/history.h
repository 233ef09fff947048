// SPDX-License-Identifier: BSD-3-Clause
//
// What the nodes that come tell of the run before them: its founder's settings, the rounds that it
// had, and who else may come back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// The first node gives the run its settings and its policy.
void found_if_first(State& state, const std::string& id, const request::Join& join, MonoTime now);

// Of a node that comes with what it knows of rounds before, maybe under a host that is gone.
void learn_rounds(State& state, const request::Join& join);

// It was here before this coordinator: so may others have been, and their workers may run.  After
// this coordinator's first round that holds for the nodes of another start.
void expect_others(State& state, const std::string& id, const request::Join& join, bool goes_on,
                   MonoTime now);

// Of those that have died where a node of the run comes from: that they have left, if no worker of
// theirs lives.  As if their guardians had said so here when that node came.  It looks at all
// nodes: for a round that could begin but for those that are awaited.
void account_for_died(State& state);

// A node that is not one of the run's has left: maybe it was in `round`, under the host before.
void account_for_left(State& state, const std::string& id, const request::Left& left);

}  // namespace ddprun::rendezvous::coordinator
