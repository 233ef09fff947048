// SPDX-License-Identifier: BSD-3-Clause
#include "cli/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace ddprun::cli {
namespace {

// Whether others may put files into the folder of `path`.
bool is_in_shared_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  struct stat info = {};
  return ::stat(folder.empty() ? "." : folder.c_str(), &info) == 0 && (info.st_mode & S_IWOTH) != 0;
}

}  // namespace

Result<Fd> open_event_file(const std::string& path) {
  const std::string what = "--event-log-handler: open " + path;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  constexpr mode_t kMode = 0644;
  const bool is_shared = is_in_shared_folder(path);
  Fd file(::open(path.c_str(), is_shared ? kFlags | O_NOFOLLOW | O_NONBLOCK : kFlags, kMode));
  struct stat info = {};
  bool is_strange = file
                        ? is_shared && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
                                        info.st_nlink != 1 || info.st_uid != ::geteuid())
                        : is_shared && (errno == ELOOP || errno == ENXIO);
  if (is_strange) {
    return Error{Errc::InvalidInput, what +
                                         ": it is a link, no regular file, or another user's, and "
                                         "anybody may have put it there"};
  }
  if (!file) return system_error(errno, what);
  return file;
}

}  // namespace ddprun::cli
