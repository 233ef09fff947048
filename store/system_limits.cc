// SPDX-License-Identifier: BSD-3-Clause
#include "store/system_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace ddprun::store {
namespace {

// As "/system.slice/slurmd.service/job_7"; empty for the topmost.
std::string own_cgroup() {
  constexpr std::string_view kUnified = "0::";
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with(kUnified)) continue;
    std::string path = line.substr(kUnified.size());
    return path.starts_with('/') && path.size() > 1 ? path : "";
  }
  return "";
}

}  // namespace

void raise_file_limit() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::size_t file_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
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
  // Each of the groups above this process's own may have a limit; without one it says "max".
  std::string group = own_cgroup();
  for (;; group.erase(group.rfind('/'))) {
    std::ifstream file("/sys/fs/cgroup" + group + "/memory.max");
    std::size_t limit = 0;
    if (file >> limit) size = std::min(size, limit);
    if (group.empty()) return size;
  }
}

}  // namespace ddprun::store
