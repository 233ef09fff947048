// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace ddprun::cli {

// First in main(): if a standard stream is closed at the start (`ddprun … >&-`), no socket may take
// its number, and with it what is meant for the stream.  /dev/null takes it.
inline void open_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open): workers inherit it
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace ddprun::cli
