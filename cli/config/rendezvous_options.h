// SPDX-License-Identifier: BSD-3-Clause
//
// Where and how nodes meet: --rdzv-*, --master-*, --standalone and their companions.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// Fills in the run id and either the workers' meeting point of a run of one node, or the
// rendezvous of a run of several.  The number of nodes and what this node brings must be known.
Result<void> add_meeting(Draft& draft, int min_nodes, int max_nodes);

}  // namespace ddprun::cli
