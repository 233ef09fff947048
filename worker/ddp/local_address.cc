// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/ddp/addresses.h"

namespace ddprun::ddp {
namespace {

Addresses look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Addresses(problem == 0 ? found : nullptr);
}

// Where a datagram to `to` would start from; empty when there is no route.
std::string source_of(const addrinfo& to) {
  int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof source;
  char text[NI_MAXHOST] = "";
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&source), &size) == 0) {
    ::getnameinfo(reinterpret_cast<sockaddr*>(&source), size, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST);
  }
  ::close(fd);
  return text;
}

}  // namespace

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  Addresses found = look_up(host, port);
  std::string address;
  for (const addrinfo* to = found.get(); to != nullptr && address.empty(); to = to->ai_next) {
    address = source_of(*to);
  }
  return address;
}

}  // namespace ddprun::ddp
