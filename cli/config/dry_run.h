// SPDX-License-Identifier: BSD-3-Clause
//
// --dry-run: what a launch would be, and from where each part of it came.
#pragma once

#include <string>

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// One line each: name, value, and the option or variable that decided it.  The config must be
// complete.
std::string dry_run_text(const ConfigBuilder& builder);

}  // namespace ddprun::cli
