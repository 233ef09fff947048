// SPDX-License-Identifier: BSD-3-Clause
#include "store/system_limits.h"

#include <sys/resource.h>

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

}  // namespace ddprun::store
