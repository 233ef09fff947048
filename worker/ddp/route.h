// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace ddprun::ddp {

// The address of this machine on its way to `host`, a name or an address, as digits; empty when
// there is no way.  Nothing is sent; a name is looked up.  Other machines that `host` can reach,
// can reach that address, which the machine's own name does not promise (Debian gives it
// 127.0.1.1).
std::string local_address_towards(const std::string& host, std::uint16_t port);

}  // namespace ddprun::ddp
