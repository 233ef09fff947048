// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/file.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "store/base/fd.h"

namespace ddprun {
namespace {

// 0, or the errno.  Interrupted, it is closed all the same.
int close_file(Fd fd) {
  return ::close(fd.release()) == 0 || errno == EINTR ? 0 : errno;
}

}  // namespace

Result<std::string> read_from(int fd, std::size_t limit, const std::string& what, off_t offset) {
  std::string text;
  std::array<char, 16 * 1024> part;
  while (text.size() < limit) {
    ssize_t count = ::pread(fd, part.data(), std::min(part.size(), limit - text.size()),
                            offset + static_cast<off_t>(text.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(errno, what);
    if (count == 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

int write_all(int fd, std::string_view bytes) {
  return write_what_fits(fd, bytes).error_number;
}

Written write_what_fits(int fd, std::string_view bytes) {
  Written written;
  while (written.bytes < bytes.size()) {
    ssize_t count = ::write(fd, bytes.data() + written.bytes, bytes.size() - written.bytes);
    if (count > 0) {
      written.bytes += static_cast<std::size_t>(count);
    } else if (count == 0) {
      written.error_number = ENOSPC;
      return written;
    } else if (errno == EAGAIN) {
      // A socket, say, that the parent process made non-blocking.
      pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      written.error_number = errno;
      return written;
    }
  }
  return written;
}

Result<void> write_new_file(int folder, const std::string& name, std::string_view text,
                            mode_t mode) {
  Fd file(
      ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) return system_error(errno, "write " + name);
  int error = write_all(file.get(), text);
  int close_error = close_file(std::move(file));  // a shared disk may refuse it only then
  if (error == 0) error = close_error;
  if (error == 0) return {};
  ::unlinkat(folder, name.c_str(), 0);
  return system_error(error, "write " + name);
}

Result<void> replace_file(int folder, const std::string& name, const std::string& partial,
                          std::string_view text, mode_t mode) {
  if (auto written = write_new_file(folder, partial, text, mode); !written) return written;
  if (::renameat(folder, partial.c_str(), folder, name.c_str()) == 0) return {};
  int error = errno;
  ::unlinkat(folder, partial.c_str(), 0);
  return system_error(error, "write " + name);
}

}  // namespace ddprun
