// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/raw_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <utility>

#include "store/base/check.h"

namespace ddprun::test {
namespace {

constexpr int kLimitSeconds = 20;
constexpr int kMomentMs = 20;

void limit_waits(int fd) {
  timeval limit{.tv_sec = kLimitSeconds, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

}  // namespace

RawClient::RawClient(std::uint16_t port, const std::string& host) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(sockaddr_in);
  auto& v4 = reinterpret_cast<sockaddr_in&>(storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
  } else {
    check(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1, "a test's host is not numeric");
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    size = sizeof(sockaddr_in6);
  }
  fd_ = Fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_waits(fd_.get());
  check(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&storage), size) == 0,
        "a test could not connect");
}

RawClient::RawClient(Fd fd) : fd_(std::move(fd)) {
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) & ~O_NONBLOCK);
  limit_waits(fd_.get());
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

RawClient& RawClient::shake_hands() {
  return send(store::request::Validate{});
}

RawClient& RawClient::send(const store::Request& request) {
  std::string bytes;
  store::encode(request, bytes);
  send(std::string_view(bytes));
  return *this;
}

std::string RawClient::receive(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t received = 0;
  while (received < count) {
    ssize_t now = ::recv(fd_.get(), bytes.data() + received, count - received, 0);
    if (now <= 0) break;
    received += static_cast<std::size_t>(now);
  }
  bytes.resize(received);
  return bytes;
}

std::string RawClient::receive_all() {
  std::string bytes;
  char buffer[65536];
  for (;;) {
    ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (count <= 0) return bytes;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

int RawClient::receive_byte() {
  std::string byte = receive(1);
  return byte.empty() ? -1 : static_cast<unsigned char>(byte[0]);
}

std::int64_t RawClient::receive_number() {
  std::string bytes = receive(sizeof(std::int64_t));
  std::int64_t number = INT64_MIN;
  if (bytes.size() == sizeof number) std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

std::string RawClient::receive_bytes() {
  std::int64_t length = receive_number();
  return length < 0 ? "(nothing)" : receive(static_cast<std::size_t>(length));
}

bool RawClient::is_closed() {
  char byte;
  return ::recv(fd_.get(), &byte, 1, MSG_PEEK) == 0 || errno == ECONNRESET || errno == EPIPE;
}

bool RawClient::is_silent() {
  pollfd waiting{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&waiting, 1, kMomentMs) == 0;
}

}  // namespace ddprun::test
