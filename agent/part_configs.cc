// SPDX-License-Identifier: BSD-3-Clause
#include "agent/part_configs.h"

#include <utility>

#include "agent/worker_spec.h"

namespace ddprun::agent {

EventContext event_context(const AgentConfig& config) {
  return {.run_id = config.workers.run_id,
          .role = config.workers.role,
          .hostname = config.workers.hostname,
          .rdzv_backend = config.rdzv_backend,
          .entry_point = entry_point(config.workers.command)};
}

StopReasonFileConfig stop_file_config(const AgentConfig& config) {
  const auto& environment = config.workers.environment;
  return {.path = stop_file(config.workers),
          .scheduler = config.scheduler,
          .environment = process::to_assignments(environment),
          .search_path = process::search_path_of(environment)};
}

StackReaderConfig stack_config(const AgentConfig& config) {
  const auto& environment = config.workers.environment;
  return {.environment = process::to_assignments(environment),
          .search_path = process::search_path_of(environment)};
}

HangMonitorConfig hang_config(const AgentConfig& config) {
  StackReaderConfig tools = stack_config(config);
  return {.decide = {.timeout = config.hang_timeout},
          .timer_file = config.timer_file,
          .environment = std::move(tools.environment),
          .search_path = std::move(tools.search_path)};
}

VitalsConfig vitals_config(const AgentConfig& config, const rendezvous::Handler& rendezvous) {
  using Use = rendezvous::Handler::VitalsUse;
  const Use use = rendezvous.vitals_use();
  return {.period = use == Use::Nothing ? Duration::zero() : config.vitals_period,
          .is_progress_only = use == Use::Progress,
          .shares_last_lines = config.shares_last_lines,
          .keeps_logs = config.workers.has_log_dir && !config.workers.has_late_folders};
}

}  // namespace ddprun::agent
