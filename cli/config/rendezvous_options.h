// SPDX-License-Identifier: BSD-3-Clause
//
// The rendezvous: --rdzv-*, --master-*, --standalone and their companions.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

// Fills in the run id, and the rendezvous of a run of several nodes, or MASTER_ADDR and MASTER_PORT
// of a run of one.  The number of nodes, what this node brings and --max-restarts must be known.
Result<void> add_rendezvous(ConfigBuilder& builder);

}  // namespace ddprun::cli
