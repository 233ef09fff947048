// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun::ddp {

// Waits until a TCPStore answers at `host`:`port`, for `limit` at most: c10d's client waits without
// one where something else accepts connections, and longer than it should where nothing does.  What
// hindered it last: "nothing listens there", "no address of 'node7' is known", "no TCPStore answers
// there, ..."; empty when one has answered, or has closed the connection.
std::string why_no_store(const std::string& host, std::uint16_t port,
                         std::chrono::milliseconds limit);

}  // namespace ddprun::ddp
