// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the addresses that the user gives for this node are addresses of this machine.
#pragma once

#include <string>

#include "cli/config/launch_config.h"
#include "cli/options/options.h"
#include "rendezvous/decide/network_config.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Fails with one line where this node would host the run of `network` and cannot listen at the
// address of --bind.  One that hosts nowhere may have the command line of the host.
Result<void> check_bind(const OptionValue& bind, const rendezvous::NetworkConfig& network,
                        const Machine& machine);

// Of --local-addr, an address of this machine as `others` ("the other nodes") are told it, which
// may be that of a NAT before it.  A line for the user, or empty where an interface has it.
std::string local_address_warning(const OptionValue& given, const std::string& host,
                                  const std::string& others, const Machine& machine);

}  // namespace ddprun::cli
