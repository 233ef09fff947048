// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ddprun::store {

// The number in the first PING of our own client (store/client.h).  torch's client sends its
// process id there; ours is no process id, so that no agent is taken for a worker that was
// announced.
inline constexpr std::uint32_t kOwnGreeting = 0x64647072;

}  // namespace ddprun::store
