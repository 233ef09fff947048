// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/oom_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
  return text_of_file(path).value_or("");
}

// Where the memory controller is mounted: its own v1 hierarchy, v2 alone, or v2 beside v1.
std::string mount_point(const std::string& root, bool is_v2) {
  std::string base = root + "/sys/fs/cgroup";
  if (!is_v2) return base + "/memory";
  std::error_code error;
  return fs::exists(base + "/cgroup.controllers", error) ? base : base + "/unified";
}

// A container may see its own cgroup as the mount point, under a path that only the host knows.
std::vector<std::string> folders(const std::string& mount, std::string path) {
  std::error_code error;
  if (!fs::exists(mount + path, error)) path.clear();
  std::vector<std::string> found;
  for (;;) {
    found.push_back(mount + path);
    auto slash = path.rfind('/');
    if (path.size() <= 1 || slash == std::string::npos) return found;
    path.resize(slash);
  }
}

// The kernel's messages have the pids of the first namespace; those of a container are others.
bool knows_the_kernels_pids(const std::string& root) {
  std::error_code error;
  fs::path space = fs::read_symlink(root + "/proc/self/ns/pid", error);
  return error || space == "pid:[4026531836]";  // PROC_PID_INIT_INO
}

}  // namespace

OomWatch::OomWatch(std::string root) : root_(std::move(root)) {
  if (auto cgroup = parse_memory_cgroup(text_of(root_ + "/proc/self/cgroup"))) {
    is_v2_ = cgroup->is_v2;
    cgroup_folders_ = folders(mount_point(root_, is_v2_), cgroup->path);
  }
  if (knows_the_kernels_pids(root_))
    kmsg_ = Fd(::open((root_ + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (kmsg_) ::lseek(kmsg_.get(), 0, SEEK_END);
  before_ = read();
}

std::string OomWatch::words_on(int pid, bool is_killed, const std::string& leaf) {
  OomReading now = read();
  OomReading before = std::exchange(before_, now);
  if (!leaf.empty()) {
    if (auto kills = parse_counter(text_of(leaf + "/memory.events"), "oom_kill")) {
      before.cgroup_kills = 0;
      now.cgroup_kills = kills;
      now.machine_kills = before.machine_kills;
    }
  }
  std::string words = oom_words(before, now, new_kernel_kills(), pid, is_killed);
  return words;
}

OomReading OomWatch::read() const {
  OomReading reading;
  reading.machine_kills = parse_counter(text_of(root_ + "/proc/vmstat"), "oom_kill");
  for (const std::string& folder : cgroup_folders_) {
    if (!reading.cgroup_kills) {
      std::string file = is_v2_ ? "/memory.events" : "/memory.oom_control";
      reading.cgroup_kills = parse_counter(text_of(folder + file), "oom_kill");
    }
    auto limit = parse_limit(text_of(folder + (is_v2_ ? "/memory.max" : "/memory.limit_in_bytes")));
    if (limit) reading.limit_bytes = std::min(*limit, reading.limit_bytes.value_or(*limit));
  }
  return reading;
}

// /dev/kmsg gives one record a read; EPIPE says that records were overwritten before we came.
std::vector<KernelKill> OomWatch::new_kernel_kills() const {
  std::vector<KernelKill> kills;
  std::array<char, 8192> record{};
  while (kmsg_) {
    ssize_t count = ::read(kmsg_.get(), record.data(), record.size());
    if (count < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (count <= 0) break;
    if (auto kill = parse_kernel_kill({record.data(), static_cast<std::size_t>(count)}))
      kills.push_back(*kill);
  }
  return kills;
}

}  // namespace ddprun::process
