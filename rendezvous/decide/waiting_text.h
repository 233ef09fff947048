// SPDX-License-Identifier: BSD-3-Clause
//
// What people are told about a run that waits, in the coordinator's name.
#pragma once

#include <string>

#include "rendezvous/decide/run_state.h"

namespace ddprun::rendezvous::coordinator {

// "waiting for nodes: 3 of 4..8 joined (node0, node1, node3)"; "waiting for node2 to stop its
// workers".
std::string waiting_text(const State& state);

// "; also waiting here: run 'job2' (1 node)", or nothing.
std::string beside_text(const State& state);

// ", 27 s of last call left"; ", 573 s left to be 4"; or nothing.
std::string time_left_text(const State& state, MonoTime now);

// "a round runs; its nodes take in newcomers together, in 14 s".
std::string newcomer_text(Duration wait);
// "a round goes on here whose nodes are coming back, 2 so far; ...": to a node that is none of
// them.
std::string returning_text(const State& state);

// To a node that comes while the host ends, for `why`.
std::string next_start_text(const std::string& why);

// Why the run ends where join_timeout has passed.
std::string too_few_text(const State& state);

// Why it ends where enough nodes for --nnodes are here, and others may go on without them.
std::string no_majority_text(const State& state);

// "--nnodes=2:4, not 2:8".  Requires that they differ.
std::string difference_text(const Settings& settings, const Settings& expected);

// "2 rounds in a row were lost to silence alone; the keep-alive limit of the
// run is 10.0 s from now on".
std::string lease_text(const State& state);

// "--max-restarts=3, join_timeout 600 s, ...".
std::string policy_text(const Policy& policy);

}  // namespace ddprun::rendezvous::coordinator
