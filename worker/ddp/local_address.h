// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace ddprun::ddp {

// The numeric local address that packets to `host` (a name or an address) would leave from; empty
// if there is no route.  Nothing is sent; a name is looked up.  Machines that `host` can reach can
// reach this address too.  The machine's own name does not promise that: Debian maps it to
// 127.0.1.1.
std::string local_address_towards(const std::string& host, std::uint16_t port);

}  // namespace ddprun::ddp
