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

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/decide/config.h"
#include "agent/decide/slurm_job.h"

namespace ddprun::cli {

// From the texts of slurm.conf and cgroup.conf, where they could be read.
agent::SlurmSignals slurm_signals(const std::optional<std::string>& slurm_conf,
                                  const std::optional<std::string>& cgroup_conf);

// The job that this process runs in, by SLURM_JOB_ID and others, which `variable` looks up; empty
// for one that is not set.  nullopt outside.
std::optional<agent::SlurmJob> slurm_job(
    const std::function<std::string(std::string_view)>& variable);

}  // namespace ddprun::cli
