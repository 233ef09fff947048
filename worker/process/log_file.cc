// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ddprun::process {

Result<LogFile> LogFile::open(const std::string& path,
                              std::function<void(const Error&)> on_failure) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return system_error(errno, "open " + path);
  return LogFile(path, std::move(fd), std::move(on_failure));
}

void LogFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      Error error = system_error(errno, "write " + path_);
      if (auto tell = std::exchange(on_failure_, nullptr)) tell(error);
      return;
    }
  }
}

}  // namespace ddprun::process
