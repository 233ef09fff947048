// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "rendezvous/decide/network_config.h"

namespace ddprun::cli {

// For a node that can start no worker of a run of several: says `why`, and meets the other nodes
// all the same, which would wait for it in vain otherwise.  Returns when they know, or have not
// come within half a minute.
void report_preflight_failure(rendezvous::NetworkConfig network, const std::string& why);

}  // namespace ddprun::cli
