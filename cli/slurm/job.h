// SPDX-License-Identifier: BSD-3-Clause
//
// Why Slurm signals a job: its signals do not say, so it follows from the job's time limit and,
// where the machine has scontrol, from what that says of the job.  Pure.
//
// Source: what `scontrol show job` of Slurm 22.05 was seen to say at each kind of end.  Of a job
// that ends at its limit or for a lost node the reason is named; a preempted one has a PreemptTime
// while its grace runs; one that begins again has a Restarts of one more already.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "worker/stop_reason.h"

namespace ddprun::cli {

// The job that this agent runs in, from its environment.
struct SlurmJob {
  std::string id;
  int restart_count = 0;
  int node_count = 1;           // that the job was given
  int node = 0;                 // this node's number in the step
  std::optional<WallTime> end;  // of its time; SLURM_JOB_END_TIME, which Slurm 22.05 does not set
};

// The job that this process runs in, by SLURM_JOB_ID and others, which `variable` looks up; empty
// for one that is not set.  nullopt outside.
std::optional<SlurmJob> slurm_job(const std::function<std::string(std::string_view)>& variable);

// A signal to save that comes within so long before the limit is taken for its announcement.
inline constexpr Duration kNearTimeLimit = std::chrono::minutes(5);

// A signal from outside, without asking anybody; nullptr outside Slurm.  `is_stop` tells a signal
// that ends the run from one that is only passed on.
worker::StopReason reason_of(int signal, bool is_stop, const SlurmJob* job, WallTime now);

// The same, with `answer`, which is what question() has written; of an empty or unusable answer
// nothing new follows.
worker::StopReason reason_of(int signal, bool is_stop, const SlurmJob& job, WallTime now,
                             std::string_view answer);

// The arguments for scontrol, and what its environment needs on top: times in seconds.
std::vector<std::string> question(const SlurmJob& job);
inline constexpr const char* kTimeFormatVariable = "SLURM_TIME_FORMAT";
inline constexpr const char* kTimeFormat = "%s";

// How long this node waits before it asks, so that the controller of a large job is not asked by
// all nodes at once: 32 in each tenth of a second.
Duration delay_of_question(const SlurmJob& job);

}  // namespace ddprun::cli
