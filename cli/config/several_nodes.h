// SPDX-License-Identifier: BSD-3-Clause
//
// A run of several nodes: where they meet, who hosts, and what this node brings.
#pragma once

#include <string>

#include "cli/config/config_builder.h"
#include "cli/config/endpoint_options.h"
#include "cli/config/node_keys.h"
#include "cli/config/rdzv_conf.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Fills in `config.network`.  `backend`: one that is known.
Result<void> add_several_nodes(ConfigBuilder& builder, EndpointOptions& endpoints,
                               const std::string& backend, const RdzvConf& conf, NodeKeys keys);

}  // namespace ddprun::cli
