// SPDX-License-Identifier: BSD-3-Clause
//
// What the agent that hosts must know before any node is told: see member::event::Formed.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/decide/runs.h"

namespace ddprun::rendezvous::runs {

// The round that one step's actions tell the node of this name; nullptr: none.  Valid as long as
// `actions`.
const command::Round* own_round(const std::vector<Action>& actions, const std::string& node);

}  // namespace ddprun::rendezvous::runs
