// SPDX-License-Identifier: BSD-3-Clause
//
// Whom a signal of scancel, --signal or a preemption reaches depends on how the site lets Slurm
// keep track of processes (found by trying each on Slurm 22.05; slurm.conf(5), cgroup.conf(5)):
//
//   ProctrackType=proctrack/cgroup     what slurmstepd has started, which is the agent (the
//   default)
//     with SignalChildrenProcesses=yes every process of the step
//   proctrack/pgid                     the agent's process group; workers have groups of their own
//   proctrack/linuxproc                every process of the step
#pragma once

#include <optional>
#include <string>

#include "agent/decide/scheduler.h"

namespace ddprun::cli {

// From the texts of slurm.conf and cgroup.conf, where they could be read.
agent::SignalReach signal_reach(const std::optional<std::string>& slurm_conf,
                                const std::optional<std::string>& cgroup_conf);

}  // namespace ddprun::cli
