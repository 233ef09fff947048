// SPDX-License-Identifier: BSD-3-Clause
//
// A run of one node: where its workers meet, and where its page is.  No other node is contacted,
// whatever the endpoint is.
#pragma once

#include "cli/config/config_builder.h"
#include "cli/config/endpoint_options.h"
#include "cli/config/node_keys.h"
#include "cli/config/rdzv_conf.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Fills in MASTER_ADDR and MASTER_PORT, the run id where torchrun would make one, and the page.
// `backend`: one that is known.
Result<void> add_one_node(ConfigBuilder& builder, EndpointOptions& endpoints,
                          const std::string& backend, const RdzvConf& conf, const NodeKeys& keys);

}  // namespace ddprun::cli
