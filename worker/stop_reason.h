// SPDX-License-Identifier: BSD-3-Clause
//
// Why the workers are told to stop, or to save: what the agent writes into the file that
// DDPRUN_STOP_REASON_FILE names, and a worker reads there (worker/ENVIRONMENT.md).  Pure.
//
//   preempted
//   Slurm has preempted job 12
//   10
//
// A word, a sentence, and the seconds that are left before SIGKILL or the next signal may come;
// an empty line where that is not known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun::worker {

enum class StopCause : std::uint8_t {
  Signal,        // "signal": from outside, and no more is known
  TimeLimit,     // "time-limit": the job's time is over, or nearly
  Preempted,     // "preempted": the scheduler wants the nodes for another job
  Cancelled,     // "cancelled": a user has ended the job
  NodeFailed,    // "node-failed": the scheduler ends the job, since one of its nodes is lost
  Requeued,      // "requeued": the scheduler begins the job again; why is not known
  WorkerFailed,  // "worker-failed": one of this run, on whichever node
  NewRound,      // "new-round": a node was lost, or one has come, and the run goes on
  RunEnded,      // "run-ended": the run is over, and not by a worker's failure
};

struct StopReason {
  StopCause cause = StopCause::Signal;
  std::string words{};                // a sentence, in one line
  std::optional<int> seconds_left{};  // at the time of writing
};

// "time-limit".
std::string_view to_word(StopCause cause);

std::string to_stop_file(const StopReason& reason);

// nullopt for what is no such file, or has a word that this version does not know.
std::optional<StopReason> parse_stop_file(std::string_view text);

}  // namespace ddprun::worker
