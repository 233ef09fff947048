// SPDX-License-Identifier: BSD-3-Clause
//
// The places at which nodes meet, as --rdzv-endpoint names them.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/options/options.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Reads "HOST[:PORT],...".  `least_port` is 1 where several programs must know the port.  Fails
// with one line that names the entry which is empty or is no endpoint.
Result<std::vector<Endpoint>> parse_endpoints(const OptionValue& value, std::uint16_t default_port,
                                              std::uint16_t least_port);

}  // namespace ddprun::cli
