// SPDX-License-Identifier: BSD-3-Clause
#include "store/system_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace ddprun::store {

void raise_file_limit() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::optional<std::size_t> longest_backlog() {
  std::ifstream file("/proc/sys/net/core/somaxconn");
  std::size_t length = 0;
  if (!(file >> length)) return std::nullopt;
  return length;
}

std::size_t memory_size() {
  auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  std::size_t size = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::ifstream file("/sys/fs/cgroup/memory.max");  // says "max" where there is no limit
  std::size_t limit = 0;
  return file >> limit ? std::min(size, limit) : size;
}

}  // namespace ddprun::store
