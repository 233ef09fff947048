// SPDX-License-Identifier: BSD-3-Clause
//
// What a worker is started with: its variables, its command line, its environment.
#pragma once

#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "rendezvous/handler.h"
#include "worker/env.h"
#include "worker/process/spawn.h"

namespace ddprun::agent {

// The file in which workers are told why they are to stop (worker/stop_reason.h); empty without a
// log folder.
std::string stop_file(const WorkerGroupConfig& config);

// The contract of worker/env, without an error file.
worker::WorkerEnv worker_env(const WorkerGroupConfig& config, const rendezvous::Round& round,
                             int restart_count, int local_rank);

// The names of the variables that are, or may be, different in each worker or in each round.
std::vector<std::string> varying_variables();

// Without its descriptors and its cgroup.  `folder`: the worker's in the log folder, empty where it
// has none.
process::ProcessSpec worker_spec(const WorkerGroupConfig& config, const worker::WorkerEnv& env,
                                 const std::string& folder);

}  // namespace ddprun::agent
