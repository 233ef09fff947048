// SPDX-License-Identifier: BSD-3-Clause
//
// What a person is told of failures and of the end, as sentences.
#pragma once

#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "agent/decide/core.h"
#include "rendezvous/decide/failure.h"

namespace ddprun::agent {

// "2 workers, ranks 0..1 of 2"; "1 worker, rank 3 of 8".
std::string describe_workers(int base_rank, int count, int world_size);

// The workers still to be stopped and the time they get: "stopping the other 3 workers (at most
// 30 s), then "; nothing where there is none.
std::string stopping(int running, bool is_own_failure, Duration grace);

// What a signal to stop does, by the state in which it comes: "stopping the workers (at most 30 s;
// a second signal: SIGKILL)".  `grace`: what workers have that are told to stop now.
std::string effect_of_stop(const State& state, const Config& config, int signal, Duration grace,
                           MonoTime now);

// What follows a failure: "restart 1 of 3"; "the end, since all 3 restarts are spent".
std::string restart_of(int restart_count, int max_restarts);
std::string why_no_restart(int max_restarts);

// The ranks that are suspected in more than one of these failures: "rank 1 on node2 kept others
// waiting in 3 attempts"; "" for none.
std::string stragglers(const std::vector<rendezvous::Failure>& failures);

// How a run went, beyond this node.
struct RunOutcome {
  std::vector<rendezvous::Failure> failures;  // at most one a restart count, in order
  int restart_count = 0;
  std::string why;        // it ended, where that was no worker's failure
  bool took_part = true;  // this node had workers at some time
  std::string outside{};  // why it was stopped from outside, where that is known
  std::string slowest{};  // "rank 7 (node2) was the slowest: ..."
  std::string loss{};     // of a node, since which there was no round: "n2 was lost (...)"
};

// The exit code of an agent whose core has ended with `exit_code`.
int exit_code_in(ExitCodes codes, int exit_code, const RunOutcome& outcome);

// "stopped by SIGTERM: job 12 was cancelled; before that n2 was lost (its agent is gone)".
std::string stopped_by(int signal, const RunOutcome& outcome);

// The closing line of a run: what became of it, what happened on the way, and the exit code.
// Requires state.phase == Phase::Finished.
std::string closing_line(const State& state, const Config& config, const RunOutcome& outcome,
                         int exit_code);

}  // namespace ddprun::agent
