// SPDX-License-Identifier: BSD-3-Clause
//
// How the nodes of a run know each other: by a secret, by MUNGE, or not at all.
#pragma once

#include <optional>

#include "cli/config/config_builder.h"
#include "rendezvous/decide/network_config.h"
#include "store/auth/secret.h"
#include "store/base/error.h"

namespace ddprun::cli {

struct NodeKeys {
  std::optional<store::Secret> secret{};
  std::optional<rendezvous::NetworkConfig::MungeUse> munge{};
};

// Reads --rdzv-auth, --rdzv-secret-file, --rdzv-encrypt and DDPRUN_SECRET, which it takes out of
// the workers' environment: they do not inherit a secret.
Result<NodeKeys> read_node_keys(ConfigBuilder& builder);

}  // namespace ddprun::cli
