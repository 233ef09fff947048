// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace ddprun::ddp {

// What keeps a TCPStore client from its server at `host`:`port`, where something else accepts
// connections: "no TCPStore answers at node7:80 within 5 s, ...".  c10d's client waits for such an
// answer without a limit.  Empty when a store has answered, and where nothing accepts at the
// moment, which that client sees to itself.  Returns after `limit` at the latest.
std::string why_no_store(const std::string& host, std::uint16_t port,
                         std::chrono::milliseconds limit);

}  // namespace ddprun::ddp
