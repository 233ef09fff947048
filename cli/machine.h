// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>

#include "cli/launch_config.h"

namespace ddprun::cli {

using Environment = std::map<std::string, std::string, std::less<>>;

// This process's environment.
Environment read_environment();

// The machine this process runs on, as seen with `environment`, which must outlive it.
Machine this_machine(const Environment& environment);

}  // namespace ddprun::cli
