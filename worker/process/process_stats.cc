// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/process_stats.h"

#include "worker/process/proc_files.h"
#include "worker/process/sweep.h"

namespace ddprun::process {
namespace {

// A page that the kernel has had to read from a disk comes with its neighbours, as the default
// read-ahead has it.
constexpr std::uint64_t kBytesPerMajorFault = 128 * 1024;

}  // namespace

ProcessStats stats_of(pid_t pid) {
  ProcessStats stats;
  auto add = [&stats](pid_t one) {
    ProcessStat stat = stat_of(one);
    stats.cpu_time += stat.cpu_time;
    stats.moved_bytes +=
        parse_io(text_of_process(one, "io")) + stat.major_faults * kBytesPerMajorFault;
    return stat.state;
  };
  stats.doing = doing_of(pid, add(pid));
  for (const Leftover& below : descendants_of(pid)) add(below.pid);
  return stats;
}

}  // namespace ddprun::process
