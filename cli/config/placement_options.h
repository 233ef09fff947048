// SPDX-License-Identifier: BSD-3-Clause
//
// What belongs to one worker of the node and not to the others: its GPU under
// --virtual-local-rank, its CPUs under --numa-binding.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// Fills in the workers' placements, where one of the options asks for it.  The number of workers
// must be known.
Result<void> add_placement(ConfigBuilder& builder);

}  // namespace ddprun::cli
