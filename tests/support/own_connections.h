// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

namespace ddprun::test {

// Breaks the connections that this process has to itself, such as store::Server::connect() gives.
inline void cut_own_connections() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int fd = std::atoi(entry.path().filename().c_str());
    int family = 0;
    socklen_t size = sizeof family;
    bool is_socket = ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0;
    if (is_socket && family == AF_UNIX) ::shutdown(fd, SHUT_RDWR);
  }
}

}  // namespace ddprun::test
