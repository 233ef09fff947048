// SPDX-License-Identifier: BSD-3-Clause
//
// From a validated config to the agent's exit code: makes the parts that live as long as the run
// (consoles, log folder, guardian, rendezvous) and runs the agent with them.
#pragma once

#include "cli/config/launch_config.h"
#include "store/base/error.h"

namespace ddprun::cli {

inline constexpr int kExitUsage = 2;

// Runs `config` to its end and returns the agent's exit code.  What this machine refuses is one
// line on stderr, and the exit code says of which kind it is (agent/STATES.md).  To be called once,
// from the thread that lives as long as the process: workers die with it.
int launch(const LaunchConfig& config);

// One line on stderr; returns `exit_code`.
int refuse(const Error& error, int exit_code = kExitUsage);

}  // namespace ddprun::cli
