// SPDX-License-Identifier: BSD-3-Clause
//
// What the workers run: a Python script, a module, or a program.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// Fills in the workers' command.
Result<void> add_command(ConfigBuilder& builder);

}  // namespace ddprun::cli
