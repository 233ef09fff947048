// SPDX-License-Identifier: BSD-3-Clause
//
// Slurm as the agent's scheduler.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/decide/scheduler.h"
#include "cli/slurm/job.h"

namespace ddprun::cli {

// For an agent in `job` and, with `reach`, in a step of it; nullopt for neither.  Without a step
// Slurm signals the agent as any other process does: the batch script passes signals on.
std::optional<agent::Scheduler> slurm_scheduler(const std::optional<SlurmJob>& job,
                                                const std::optional<agent::SignalReach>& reach);

}  // namespace ddprun::cli
