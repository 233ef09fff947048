// SPDX-License-Identifier: BSD-3-Clause
#include "cli/systemd.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "store/base/error.h"

namespace ddprun::cli {
namespace {

constexpr int kFirstPassed = 3;

// The variable's value; it is removed.
std::string take(const char* name) {
  const char* value = ::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

}  // namespace

Result<std::optional<Fd>> take_passed_socket() {
  std::string pid = take("LISTEN_PID");
  std::string count = take("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  if (pid != std::to_string(::getpid()) || count.empty() || count == "0") {
    return std::optional<Fd>();
  }
  if (count != "1") {
    return Error{Errc::InvalidInput, "LISTEN_FDS='" + count + "': one socket is expected"};
  }
  ::fcntl(kFirstPassed, F_SETFD, FD_CLOEXEC);
  return std::optional<Fd>(Fd(kFirstPassed));
}

Notifier::Notifier() : path_(take("NOTIFY_SOCKET")) {}

void Notifier::tell(const std::string& lines) const {
  sockaddr_un address{};
  bool is_usable = path_.size() > 1 && path_.size() < sizeof address.sun_path;
  if (!is_usable) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  if (path_[0] == '@') address.sun_path[0] = '\0';  // a name that is in no folder
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_.size());
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ::sendto(fd.get(), lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace ddprun::cli
