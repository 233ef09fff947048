// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/liveness.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "worker/ddp/addresses.h"

namespace ddprun::ddp {
namespace {

using Clock = std::chrono::steady_clock;

// Connections at the same time: many times fewer than a process may have files open.
constexpr std::size_t kAtOnce = 128;

// Every rank connects a few times when one is gone, and none of it is accepted.
constexpr int kWaiting = 4096;

Addresses address_of(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int problem = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found);
  return Addresses(problem == 0 ? found : nullptr);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char port[NI_MAXSERV] = "0";
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0) {
    ::getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port,
                  NI_NUMERICSERV);
  }
  return static_cast<std::uint16_t>(std::stoi(port));
}

// A connection that is being made; -1 when there is nothing to wait for, with errno saying why.
int begin_connecting(const Endpoint& endpoint) {
  errno = EINVAL;
  const Addresses to = endpoint.host.empty() ? nullptr : address_of(endpoint);
  if (!to) return -1;
  const int fd = ::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (::connect(fd, to->ai_addr, to->ai_addrlen) == 0 || errno == EINPROGRESS) return fd;
  const int problem = errno;
  ::close(fd);
  errno = problem;
  return -1;
}

bool is_refused(int fd) {
  int problem = 0;
  socklen_t size = sizeof problem;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == ECONNREFUSED;
}

// The part of closed_peers() for the endpoints from `begin` to before `end`.
void find_refusing(const std::vector<Endpoint>& endpoints, std::size_t begin, std::size_t end,
                   Clock::time_point deadline, std::vector<std::size_t>& found) {
  std::vector<pollfd> polled;
  for (std::size_t i = begin; i < end; ++i) {
    polled.push_back({.fd = begin_connecting(endpoints[i]), .events = POLLOUT, .revents = 0});
    if (polled.back().fd < 0 && errno == ECONNREFUSED) found.push_back(i);
  }
  std::vector<int> opened;
  for (const pollfd& one : polled) opened.push_back(one.fd);
  auto is_waiting = [](const pollfd& one) { return one.fd >= 0; };
  while (std::any_of(polled.begin(), polled.end(), is_waiting)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const auto limit = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    const int ready = ::poll(polled.data(), polled.size(), limit);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      if (is_refused(polled[i].fd)) found.push_back(begin + i);
      polled[i].fd = -1;  // poll leaves it out
    }
  }
  for (int fd : opened) {
    if (fd >= 0) ::close(fd);
  }
}

}  // namespace

Result<std::unique_ptr<LivenessSocket>> LivenessSocket::open(const std::string& address) {
  const Endpoint asked{.host = address, .port = 0};
  const std::string what = "listen at " + to_string(asked);
  const Addresses at = address_of(asked);
  if (!at) return Error{make_error_code(Errc::InvalidInput), what + ": this is no address"};
  const int fd = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return system_error(errno, what);
  if (::bind(fd, at->ai_addr, at->ai_addrlen) != 0 || ::listen(fd, kWaiting) != 0) {
    const int problem = errno;
    ::close(fd);
    return system_error(problem, what);
  }
  return std::unique_ptr<LivenessSocket>(
      new LivenessSocket(fd, {.host = address, .port = port_of(fd)}));
}

LivenessSocket::~LivenessSocket() {
  ::close(fd_);
}

std::vector<std::size_t> closed_peers(const std::vector<Endpoint>& endpoints,
                                      std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  std::vector<std::size_t> found;
  for (std::size_t begin = 0; begin < endpoints.size(); begin += kAtOnce) {
    find_refusing(endpoints, begin, std::min(begin + kAtOnce, endpoints.size()), deadline, found);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace ddprun::ddp
