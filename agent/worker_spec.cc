// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_spec.h"

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/decide/macros.h"
#include "agent/hang_monitor.h"
#include "agent/log_dir.h"
#include "agent/slice_reader.h"

namespace ddprun::agent {
namespace {

std::vector<std::string> environment_of(const WorkerGroupConfig& config,
                                        const WorkerPlacement& placement,
                                        const worker::WorkerEnv& env, const std::string& folder) {
  auto environment = config.environment;
  if (!folder.empty()) {
    environment[kHeartbeatVariable] = heartbeat_path(folder);
    environment[worker::kTimelineVariable] = slices_path(folder);
  }
  worker::Lookup inherited = [&](std::string_view name) -> std::optional<std::string> {
    auto found = config.environment.find(name);
    if (found == config.environment.end()) return std::nullopt;
    return found->second;
  };
  for (auto& [name, value] : worker::to_variables(env, inherited)) environment[name] = value;
  for (const auto& [name, value] : placement.environment) environment[name] = value;
  return process::to_assignments(environment);
}

}  // namespace

std::string stop_file(const WorkerGroupConfig& config) {
  return config.log_dir ? config.log_dir->path() + "/stop_reason" : "";
}

worker::WorkerEnv worker_env(const WorkerGroupConfig& config, const rendezvous::Round& round,
                             int restart_count, int local_rank) {
  return {.rank = round.ranks.base_rank + local_rank,
          .world_size = round.ranks.world_size,
          .local_rank = local_rank,
          .local_world_size = config.local_world_size,
          .group_rank = round.ranks.group_rank,
          .group_world_size = round.ranks.group_world_size,
          .role_rank = round.ranks.role_base_rank + local_rank,
          .role_world_size = round.ranks.role_world_size,
          .role = config.role,
          .master = round.master,
          .use_agent_store = true,
          .restart_count = restart_count,
          .round = static_cast<int>(round.number),
          .run_uuid = round.run_uuid,
          .max_restarts = round.max_restarts,
          .run_id = config.run_id,
          .error_file = "",
          .job_id = config.job_id,
          .requeue_count = config.requeue_count,
          .stop_file = stop_file(config)};
}

std::vector<std::string> varying_variables() {
  return {"RANK",
          "WORLD_SIZE",
          "LOCAL_RANK",
          "GROUP_RANK",
          "GROUP_WORLD_SIZE",
          "ROLE_RANK",
          "ROLE_WORLD_SIZE",
          "MASTER_ADDR",
          "MASTER_PORT",
          "TORCHELASTIC_RESTART_COUNT",
          "TORCHELASTIC_ERROR_FILE",
          "DDPRUN_ROUND",
          kHeartbeatVariable,
          worker::kTimelineVariable};
}

process::ProcessSpec worker_spec(const WorkerGroupConfig& config, const worker::WorkerEnv& env,
                                 const std::string& folder) {
  process::ProcessSpec spec;
  for (const std::string& argument : config.command) {
    spec.argv.push_back(substitute(argument, {{"local_rank", std::to_string(env.local_rank)}}));
  }
  const WorkerPlacement& placement = config.placements.at(static_cast<std::size_t>(env.local_rank));
  spec.environment = environment_of(config, placement, env, folder);
  spec.cpus = placement.cpus;
  return spec;
}

}  // namespace ddprun::agent
