// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/close_from.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>

namespace ddprun::process {
namespace {

// The number that a name in /proc/self/fd is; -1 for "." and "..".
int number_of(const char* name) {
  int number = 0;
  if (*name == '\0') return -1;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = number * 10 + (*name - '0');
  }
  return number;
}

// Whether /proc could be read.  The kernel lists by number, so what is closed hides nothing behind
// it.
bool close_what_proc_names(unsigned first) {
  int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  alignas(dirent64) std::array<char, 4096> entries;
  for (;;) {
    long bytes = ::syscall(SYS_getdents64, folder, entries.data(), entries.size());
    if (bytes <= 0) {
      ::close(folder);
      return bytes == 0;
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(bytes);) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
      int fd = number_of(entry->d_name);
      if (fd >= 0 && static_cast<unsigned>(fd) >= first && fd != folder) ::close(fd);
      at += entry->d_reclen;
    }
  }
}

}  // namespace

void close_from(unsigned first) {
  if (::syscall(SYS_close_range, first, UINT_MAX, 0U) == 0) return;
  if (close_what_proc_names(first)) return;
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (auto fd = static_cast<int>(first); static_cast<rlim_t>(fd) < limit.rlim_cur; ++fd)
    ::close(fd);
}

}  // namespace ddprun::process
