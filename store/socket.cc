// SPDX-License-Identifier: BSD-3-Clause
#include "store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ddprun::store {
namespace {

// A peer whose machine has gone without a word is given up after two minutes.
constexpr int kKeepAliveIdleSeconds = 60;
constexpr int kKeepAliveIntervalSeconds = 15;
constexpr int kKeepAliveProbes = 4;

// A socket address of either family.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_storage);

  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Result<Address> numeric_address(const Endpoint& endpoint) {
  std::string host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host;
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    address.size = sizeof *v4;
    return address;
  }
  if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    address.size = sizeof *v6;
    return address;
  }
  return Error{Errc::InvalidInput, "cannot listen on '" + endpoint.host +
                                       "': not a numeric address, and names are not looked up"};
}

std::uint16_t port_of(const Address& address) {
  if (address.storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

std::string host_of(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
    constexpr std::string_view kMapped = "::ffff:";
    std::string_view host = text;
    return std::string(host.starts_with(kMapped) ? host.substr(kMapped.size()) : host);
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
  ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  return text;
}

bool set_option(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

// No delay of small segments, and keep-alive.  The connections of a listening socket inherit them
// (tcp(7)), which saves five system calls for each that is accepted.
bool set_connection_options(int fd) {
  return set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1) &&
         set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1) &&
         set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds) &&
         set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds) &&
         set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

}  // namespace

Result<Fd> bind_on(const Endpoint& endpoint) {
  Result<Address> address = numeric_address(endpoint);
  if (!address) return address.error();
  int family = address->storage.ss_family;
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(errno, "open a socket for " + to_string(endpoint));
  bool has_options = set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) &&
                     (family != AF_INET6 || set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) &&
                     set_connection_options(fd.get());
  if (!has_options) return system_error(errno, "set up a socket for " + to_string(endpoint));
  if (::bind(fd.get(), address->raw(), address->size) != 0) {
    return system_error(errno, "bind " + to_string(endpoint));
  }
  return fd;
}

Result<Fd> listen_on(const Endpoint& endpoint) {
  Result<Fd> fd = bind_on(endpoint);
  if (!fd) return fd;
  // The kernel cuts the backlog down to net.core.somaxconn; more cannot be asked for.
  constexpr int kBacklog = 1 << 16;
  if (::listen(fd->get(), kBacklog) != 0) {
    return system_error(errno, "listen on " + to_string(endpoint));
  }
  return fd;
}

void bound_silence(int fd, Duration limit) {
  constexpr int kProbes = 4;
  auto seconds = std::chrono::ceil<std::chrono::seconds>(limit).count();
  int pause = static_cast<int>(std::clamp<std::int64_t>(seconds / (kProbes + 1), 1, 3600));
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, pause * (kProbes + 1) * 1000);
}

Result<Fd> take_listener(Fd fd) {
  int is_listening = 0;
  int domain = 0;
  socklen_t size = sizeof(int);
  bool is_tcp = ::getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) == 0 &&
                ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
                is_listening != 0 && (domain == AF_INET || domain == AF_INET6);
  if (!is_tcp) {
    return Error{Errc::InvalidInput,
                 "descriptor " + std::to_string(fd.get()) + " is not a listening TCP socket"};
  }
  int flags = ::fcntl(fd.get(), F_GETFL);
  if (::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return system_error(errno, "set up descriptor " + std::to_string(fd.get()));
  }
  return fd;
}

Result<Endpoint> local_endpoint(int fd) {
  Address address;
  if (::getsockname(fd, address.raw(), &address.size) != 0) {
    return system_error(errno, "read the address of a socket");
  }
  return Endpoint{.host = host_of(address), .port = port_of(address)};
}

Result<std::uint16_t> local_port(int fd) {
  Result<Endpoint> endpoint = local_endpoint(fd);
  if (!endpoint) return endpoint.error();
  return endpoint->port;
}

Fd accept_from(int listening_fd) {
  return Fd(::accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

std::string peer_host(int fd) {
  Address address;
  if (::getpeername(fd, address.raw(), &address.size) != 0) return "";
  return host_of(address);
}

std::string peer_of(int fd) {
  Address address;
  if (::getpeername(fd, address.raw(), &address.size) != 0) return "unknown peer";
  return to_string(Endpoint{.host = host_of(address), .port = port_of(address)});
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> addresses;
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return addresses;
  for (ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    } else {
      continue;
    }
    addresses.emplace_back(text);
  }
  ::freeifaddrs(first);
  return addresses;
}

}  // namespace ddprun::store
