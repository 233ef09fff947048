// SPDX-License-Identifier: BSD-3-Clause
//
// Where the workers' output goes: --log-dir, --redirects, --tee and their companions.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// Fills in the log folder, the routes of all streams, and the prefix of lines.  The number of
// workers must be known, and what watches over hangs.
Result<void> add_logs(ConfigBuilder& builder);

}  // namespace ddprun::cli
