// SPDX-License-Identifier: BSD-3-Clause
//
// What work costs, in the time that finding one name takes: about a quarter of a microsecond.  It
// is counted, and no clock is read, so that the same requests always cost the same.
#pragma once

#include <cstddef>

namespace ddprun::store::effort {

// So many bytes of a value cost as much to store, copy, compare, receive or send as a name, and so
// many of a name to hash.
inline constexpr std::size_t kBytes = 1024;
inline constexpr std::size_t kHashedBytes = 512;

// So many waiters of a name cost as much to look at, and to move up where others have left, as a
// name.
inline constexpr std::size_t kWaitersMoved = 8;

// One call of the system that reads, one that sends, to forget a connection, and to take one.
inline constexpr std::size_t kRead = 4;
inline constexpr std::size_t kSend = 12;
inline constexpr std::size_t kForget = 16;
inline constexpr std::size_t kAccept = 40;

}  // namespace ddprun::store::effort
