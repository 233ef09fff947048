// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun::ddp {

// The address of this machine on its way to `host`, a name or an address, as digits; empty when
// there is no way.  Nothing is sent; a name is looked up.  Other machines that `host` can reach,
// can reach that address, which the machine's own name does not promise (Debian gives it
// 127.0.1.1).
std::string local_address_towards(const std::string& host, std::uint16_t port);

// Waits until something accepts connections at `host`:`port`, for `limit` at most; false when
// nothing did, or `host` is no name.  The connection is closed without a word.
bool wait_for_listener(const std::string& host, std::uint16_t port,
                       std::chrono::milliseconds limit);

}  // namespace ddprun::ddp
