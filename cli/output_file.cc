// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output_file.h"

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

// It is emptied only when it is known whose it is.
Result<Fd> open_output(const std::string& path, OutputMode output_mode, mode_t mode,
                       const std::string& what) {
  const bool is_shared = is_in_shared_folder(path);
  int flags = O_WRONLY | O_CREAT | O_CLOEXEC;
  if (output_mode == OutputMode::Append) flags |= O_APPEND;
  if (is_shared) flags |= O_NOFOLLOW | O_NONBLOCK;
  Fd file(::open(path.c_str(), flags, mode));
  struct stat info = {};
  if (file && ::fstat(file.get(), &info) != 0) return system_error(errno, what);
  bool is_strange = file ? is_shared && (!S_ISREG(info.st_mode) || info.st_nlink != 1 ||
                                         info.st_uid != ::geteuid())
                         : is_shared && (errno == ELOOP || errno == ENXIO);
  if (is_strange) {
    return Error{Errc::InvalidInput, what +
                                         ": it is a link, no regular file, or another user's, and "
                                         "anybody may have put it there"};
  }
  if (!file) return system_error(errno, what);
  bool is_to_be_emptied = output_mode == OutputMode::Replace && S_ISREG(info.st_mode);
  if (is_to_be_emptied && ::ftruncate(file.get(), 0) != 0) return system_error(errno, what);
  return file;
}

}  // namespace ddprun::cli
