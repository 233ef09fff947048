// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/stand_in_port.h"

#include <utility>

#include "store/socket.h"

namespace ddprun::rendezvous {

StandInPort::StandInPort(Fd holder, std::string host, std::uint16_t port)
    : holder_(std::move(holder)), host_(std::move(host)), port_(port) {}

Result<StandInPort> StandInPort::take(const std::string& host) {
  std::string at = host.empty() ? "::" : host;
  auto holder = store::bind_on({.host = at, .port = 0});
  if (!holder && host.empty()) {  // a machine without IPv6
    at = "0.0.0.0";
    holder = store::bind_on({.host = at, .port = 0});
  }
  if (!holder) return holder.error();
  auto port = store::local_port(holder->get());
  if (!port) return port.error();
  return StandInPort(std::move(*holder), std::move(at), *port);
}

Result<Fd> StandInPort::listen() const {
  return store::listen_on({.host = host_, .port = port_});
}

}  // namespace ddprun::rendezvous
