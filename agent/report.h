// SPDX-License-Identifier: BSD-3-Clause
//
// What a person is told of failures and of the end, as sentences.
#pragma once

#include <string>

#include "agent/core.h"

namespace ddprun::agent {

// "2 workers, ranks 0..1 of 2"; "1 worker, rank 3 of 8".
std::string describe_workers(int base_rank, int count, int world_size);

// "rank 1 (local rank 1, pid 4211) exited with code 1: ValueError: boom", with the first line of
// the worker's own message where it left one.
std::string describe(const Failure& failure);

// What the decision was after `state.failures.back()`: who is stopped, and what follows.
// "stopping the other 3 workers (30 s of grace), then restart 1 of 3".
std::string what_follows(const State& state, const Config& config);

// The closing line of a run: what became of it, what happened on the way, and the exit code.
// Requires state.phase == Phase::Finished.
std::string closing_line(const State& state, const Config& config, int exit_code);

}  // namespace ddprun::agent
