// SPDX-License-Identifier: BSD-3-Clause
//
// Which user of this machine has the other end of a connection: sock_diag(7).  A question takes
// some microseconds, however many sockets there are, and is answered at once.
#pragma once

#include <cstdint>

#include "store/base/fd.h"
#include "store/decide/gate.h"

namespace ddprun::store {

// Threads: one at a time.
class SocketOwners {
 public:
  SocketOwners() = default;  // which cannot answer

  // Asks about `listening_fd`, to find out whether the system answers such questions at all: a
  // kernel may lack the part for it, and a sandbox may forbid it.
  explicit SocketOwners(int listening_fd);

  bool can_answer() const { return static_cast<bool>(socket_); }

  // Who has the other end of a connection, whose both ends are on this machine.
  PeerProcess peer_of(int fd);

 private:
  Fd socket_;
  std::uint32_t questions_ = 0;
};

}  // namespace ddprun::store
