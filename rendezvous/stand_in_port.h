// SPDX-License-Identifier: BSD-3-Clause
//
// The port on which this node would host its run.  The other nodes know it from the start; they are
// refused there until this node does host.
#pragma once

#include <cstdint>
#include <string>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::rendezvous {

class StandInPort {
 public:
  // Takes a free port of this address, numeric or "localhost"; empty: of all interfaces.  Fails
  // with the system's code where there is none.
  static Result<StandInPort> take(const std::string& host);

  std::uint16_t port() const { return port_; }

  // A socket that listens there until it is closed.  One at a time; the port stays taken after it.
  Result<Fd> listen() const;

 private:
  StandInPort(Fd holder, std::string host, std::uint16_t port);

  Fd holder_;         // bound, and never listens
  std::string host_;  // numeric
  std::uint16_t port_ = 0;
};

}  // namespace ddprun::rendezvous
