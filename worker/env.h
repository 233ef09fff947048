// SPDX-License-Identifier: BSD-3-Clause
//
// The contract between launcher and worker: the variables that a worker finds in its environment
// (worker/ENVIRONMENT.md).  For ranks and addresses one module writes and reads them, so that the
// two halves cannot drift. Names, spellings and meanings are torchrun's, as of torch 2.15.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::worker {

struct WorkerEnv {
  int rank = 0;                  // RANK, in [0, world_size)
  int world_size = 1;            // WORLD_SIZE: workers of the run, over all nodes
  int local_rank = 0;            // LOCAL_RANK, in [0, local_world_size)
  int local_world_size = 1;      // LOCAL_WORLD_SIZE: workers on this node
  int group_rank = 0;            // GROUP_RANK: the node's rank in this round
  int group_world_size = 1;      // GROUP_WORLD_SIZE: nodes in this round
  int role_rank = 0;             // ROLE_RANK: as rank, among the workers of the same role
  int role_world_size = 1;       // ROLE_WORLD_SIZE
  std::string role = "default";  // ROLE_NAME
  Endpoint master{};             // MASTER_ADDR, MASTER_PORT: the worker store
  bool use_agent_store = false;  // TORCHELASTIC_USE_AGENT_STORE: the agent hosts that store
  int restart_count = 0;         // TORCHELASTIC_RESTART_COUNT: failure restarts so far
  int round = 0;                 // DDPRUN_ROUND: 0 in the run's first; of other launchers always
  std::string run_uuid{};        // DDPRUN_RUN_UUID: of this run, on all its nodes; empty: unknown
  int max_restarts = 0;          // TORCHELASTIC_MAX_RESTARTS
  std::string run_id = "none";   // TORCHELASTIC_RUN_ID
  std::string error_file{};      // TORCHELASTIC_ERROR_FILE; empty: none
  std::string job_id{};          // DDPRUN_JOB_ID: run_id, where it is not set
  int requeue_count = 0;         // DDPRUN_REQUEUE_COUNT: by a scheduler
  std::string stop_file{};       // DDPRUN_STOP_REASON_FILE (worker/stop_reason.h); empty: none
};

// Looks one variable up; nullopt when it is not set.
using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

using Variable = std::pair<std::string, std::string>;  // name, value

// The variables to set for one worker, on top of the inherited environment.  `inherited` is asked
// where torchrun keeps what the user has set: TORCH_NCCL_ASYNC_ERROR_HANDLING and OMP_NUM_THREADS
// (1 when unset and the node runs more than one worker, so that workers do not fight for cores).
std::vector<Variable> to_variables(const WorkerEnv& env, const Lookup& inherited);

// Reads the contract back in a worker.  RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT must be
// there, since any launcher of torch programs sets them; the others have the defaults above, so
// that a program also runs under launchers that know nothing of agents and rounds.  Fails with
// Errc::InvalidInput and a sentence that names the variable, its value and what is accepted.
Result<WorkerEnv> worker_env_from(const Lookup& lookup);

}  // namespace ddprun::worker
