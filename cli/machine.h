// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>

#include "cli/config/launch_config.h"

namespace ddprun::cli {

using Environment = std::map<std::string, std::string, std::less<>>;

// This process's environment.
Environment read_environment();

// The machine this process runs on, as seen with `environment`, which must outlive it.
Machine this_machine(const Environment& environment);

// Whether this process may open as many files as a run of these workers needs at least, by its hard
// limit.
Result<void> has_descriptors_for(const agent::WorkerGroupConfig& config);

// Whether this user can start as many threads and processes as a rendezvous of several nodes needs
// at least.
Result<void> has_threads_for_rendezvous();

}  // namespace ddprun::cli
