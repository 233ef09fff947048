// SPDX-License-Identifier: BSD-3-Clause
//
// Failures and signals: restarts, the grace of a stop, which signals stop the run and which pass
// through, which failures are not restarted, hangs, the style of exit codes, and events.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

Result<void> add_failures(ConfigBuilder& builder);

}  // namespace ddprun::cli
