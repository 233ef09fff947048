// SPDX-License-Identifier: BSD-3-Clause
//
// What people are told of the runs that are here.
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/decide/runs.h"

namespace ddprun::rendezvous::runs {

// "run 'job2' (3 nodes)"; empty where there is none.
std::string who_is_here(const State& state);

// Of so many runs is looked for one that a node may have been meant for: the nearest by name.
inline constexpr std::size_t kNeighbours = 256;

// Other runs that a node of this one may have been meant for: a slip in --rdzv-id.
std::string who_waits_beside(const State& state, const std::string& name);

// To the nodes here: the run stays, although another host comes first, since nobody here reaches
// it.
std::string beyond_reach_text(const Endpoint& rival);
// To the nodes here: why the run goes to where so many others are.
std::string stuck_text(int nodes);
// To the nodes there: why the run is to be where others reach its host.
std::string not_reached_text(const Endpoint& host);

}  // namespace ddprun::rendezvous::runs
