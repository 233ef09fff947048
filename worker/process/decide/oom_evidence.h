// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a worker that was killed by SIGKILL was killed by the kernel for want of memory, judged
// from what the kernel says before and after.  Pure: texts of /proc, /sys/fs/cgroup and /dev/kmsg
// come in, a sentence goes out.  worker/process/oom_watch.h does the reading.
//
// Sources: Documentation/admin-guide/cgroup-v2.rst (memory.events, memory.max),
// cgroup-v1/memory.rst (memory.oom_control, memory.limit_in_bytes), mm/oom_kill.c (the messages).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::process {

// The memory cgroup of a process, by /proc/PID/cgroup: its path below the mount point.
struct MemoryCgroup {
  bool is_v2 = false;
  std::string path;  // "/user.slice/job_7"
};

// A hybrid system has memory in the v1 hierarchy; that line wins over v2's "0::".  nullopt for a
// text without either.
std::optional<MemoryCgroup> parse_memory_cgroup(std::string_view proc_cgroup);

// The number behind `name` in lines of "name number", such as memory.events, memory.oom_control and
// /proc/vmstat.  nullopt where there is none.
std::optional<std::int64_t> parse_counter(std::string_view text, std::string_view name);

// memory.max or memory.limit_in_bytes.  nullopt for "max" and for v1's huge number: no limit.
std::optional<std::int64_t> parse_limit(std::string_view text);

// One process that the OOM killer ended, by a record of /dev/kmsg.
struct KernelKill {
  int pid = 0;
  bool is_by_cgroup = false;    // a cgroup's limit, not the machine's memory
  std::int64_t rss_bytes = -1;  // anonymous memory it held; -1: not said
};

// nullopt for a record about anything else.
std::optional<KernelKill> parse_kernel_kill(std::string_view record);

// What was readable at one moment.
struct OomReading {
  std::optional<std::int64_t> cgroup_kills;   // in our memory cgroup
  std::optional<std::int64_t> machine_kills;  // on the whole machine
  std::optional<std::int64_t> limit_bytes;    // the tightest from our cgroup upwards
};

// The sentence for the worker `pid`, without a full stop, or "" where the kernel says nothing:
//   "the kernel's OOM killer: memory cgroup limit reached (limit 512 MiB)"
// `is_killed`: whether it died by SIGKILL.  If not, it may still have failed because the kernel
// killed a process of its own (a data loader's), and the sentence says that much and no more.
std::string oom_words(const OomReading& before, const OomReading& after,
                      const std::vector<KernelKill>& kernel_kills, int pid, bool is_killed);

// "512 MiB", "1.5 GiB", "900 bytes".
std::string describe_bytes(std::int64_t bytes);

}  // namespace ddprun::process
