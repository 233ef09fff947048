// SPDX-License-Identifier: BSD-3-Clause
//
// The server that a host opens for the nodes of its run: where it listens, whom it lets in, and how
// much it takes.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/decide/network_config.h"
#include "rendezvous/node_security.h"
#include "store/server.h"

namespace ddprun::rendezvous {

// The address to listen on; empty: all.
std::string listening_host(const NetworkConfig& config);

// Without the port.
store::ServerConfig server_config_of(const NetworkConfig& config, const NodeSecurity& security,
                                     std::function<void(const std::string&)> log);

}  // namespace ddprun::rendezvous
