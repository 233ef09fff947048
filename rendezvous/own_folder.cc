// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/own_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddprun::rendezvous {

bool make_own_folder(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

Result<Fd> open_own_folder(const std::string& path) {
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!folder || ::fstat(folder.get(), &status) != 0)
    return Error{Errc::InvalidInput, std::strerror(errno)};
  bool is_own = status.st_uid == ::geteuid() && (status.st_mode & 0077) == 0;
  if (is_own) return folder;
  return Error{Errc::InvalidInput, "other users have access to it, or own it"};
}

}  // namespace ddprun::rendezvous
