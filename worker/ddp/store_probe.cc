// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/store_probe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "worker/ddp/addresses.h"

namespace ddprun::ddp {
namespace {

using Clock = std::chrono::steady_clock;
using Nonce = std::array<char, 4>;

// A refusal comes at once on one machine, and rank 0 needs some milliseconds at most.
constexpr std::chrono::milliseconds kFirstPause{5};
constexpr std::chrono::milliseconds kLongestPause{200};
constexpr std::chrono::milliseconds kLookUpPause{1000};

// How a client of TCPStore begins (store/PROTOCOL.md): VALIDATE with a magic number, then PING with
// a number, in the byte order of the machine, which comes back.
constexpr std::uint8_t kValidate = 0;
constexpr std::uint32_t kMagic = 0x3C85F7CE;
constexpr std::uint8_t kPing = 13;
constexpr Nonce kNonce{'d', 'd', 'p', 'r'};

class Socket {
 public:
  explicit Socket(const addrinfo& to)
      : fd_(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool connect(const addrinfo& to, Clock::time_point deadline) const {
    if (fd_ < 0) return false;
    if (::connect(fd_, to.ai_addr, to.ai_addrlen) == 0) return true;
    int problem = 0;
    socklen_t size = sizeof problem;
    return errno == EINPROGRESS && becomes(POLLOUT, deadline) &&
           ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 && problem == 0;
  }

  // The few bytes of a greeting fit into a new connection.
  bool send(const std::string& bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  bool becomes(short state, Clock::time_point deadline) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd wanted{fd_, state, 0};
      const int ready =
          ::poll(&wanted, 1, static_cast<int>(std::clamp<long>(left.count(), 0, 1000)));
      if (ready == 1) return true;
      if (ready < 0 && errno != EINTR) return false;
      if (left.count() <= 0) return false;
    }
  }

  // What has come, at most as much as is asked for; empty at the end of the connection.
  std::string receive(std::size_t count) const {
    std::string bytes(count, '\0');
    const ssize_t size = ::recv(fd_, bytes.data(), count, 0);
    bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

 private:
  int fd_;
};

std::string greeting() {
  std::string bytes(1, static_cast<char>(kValidate));
  bytes.append(reinterpret_cast<const char*>(&kMagic), sizeof kMagic);
  bytes += static_cast<char>(kPing);
  bytes.append(kNonce.data(), kNonce.size());
  return bytes;
}

enum class Answer : std::uint8_t { OfStore, Other, None, Closed };

Answer answer_of(const Socket& socket, Clock::time_point deadline) {
  if (!socket.send(greeting())) return Answer::Closed;
  std::string answer;
  while (answer.size() < kNonce.size()) {
    if (!socket.becomes(POLLIN, deadline)) return Answer::None;
    const std::string more = socket.receive(kNonce.size() - answer.size());
    if (more.empty()) return Answer::Closed;
    answer += more;
  }
  return std::equal(answer.begin(), answer.end(), kNonce.begin()) ? Answer::OfStore : Answer::Other;
}

Addresses look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return Addresses(problem == 0 ? found : nullptr);
}

// Empty: a store is there, or one that ends, or is not ready: c10d's client tries again.
std::string why_not_at(const addrinfo& to, Clock::time_point deadline) {
  const Socket socket(to);
  if (!socket.connect(to, deadline)) return "nothing listens there";
  switch (answer_of(socket, deadline)) {
    case Answer::OfStore:
    case Answer::Closed:
      return "";
    case Answer::Other:
      return "what answers there is no TCPStore: is it another server's port?";
    case Answer::None:
      break;
  }
  return "no TCPStore answers there, though something accepts connections: is it another server's "
         "port?";
}

}  // namespace

std::string why_no_store(const std::string& host, std::uint16_t port,
                         std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  Addresses found;
  std::string why;
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    if (!found) found = look_up(host, port);
    if (!found) why = "no address of '" + host + "' is known";
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
      why = why_not_at(*to, deadline);
      if (why.empty()) return why;
    }
    if (Clock::now() + pause >= deadline) return why;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + pause / 5 + std::chrono::milliseconds(1),
                     found ? kLongestPause : kLookUpPause);
  }
}

}  // namespace ddprun::ddp
