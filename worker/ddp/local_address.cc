// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/local_address.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "worker/ddp/addresses.h"

namespace ddprun::ddp {
namespace {

using Clock = std::chrono::steady_clock;

// A refusal comes at once on one machine, and rank 0 needs some milliseconds at most.
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::milliseconds kLookUpPause{1000};

Addresses look_up(const std::string& host, std::uint16_t port, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Addresses(problem == 0 ? found : nullptr);
}

// Whether a program accepts a connection at `to` before `deadline`.
bool is_accepted(const addrinfo& to, Clock::time_point deadline) {
  int fd = ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  bool is_open = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0;
  if (!is_open && errno == EINPROGRESS) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wanted{fd, POLLOUT, 0};
    int problem = 0;
    socklen_t size = sizeof problem;
    is_open = ::poll(&wanted, 1, std::max<int>(0, left.count())) == 1 &&
              ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == 0;
  }
  ::close(fd);
  return is_open;
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
  Addresses found = look_up(host, port, SOCK_DGRAM);
  std::string address;
  for (const addrinfo* to = found.get(); to != nullptr && address.empty(); to = to->ai_next) {
    address = source_of(*to);
  }
  return address;
}

std::string why_no_listener(const std::string& host, std::uint16_t port,
                            std::chrono::milliseconds limit) {
  Clock::time_point deadline = Clock::now() + limit;
  Addresses found;
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    if (!found) found = look_up(host, port, SOCK_STREAM);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      if (is_accepted(*to, deadline)) return "";
    }
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 5 + std::chrono::milliseconds(1),
                     found ? kLongestPause : kLookUpPause);
  }
  return found ? "nothing listens there" : "no address of '" + host + "' is known";
}

}  // namespace ddprun::ddp
