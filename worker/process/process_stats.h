// SPDX-License-Identifier: BSD-3-Clause
//
// What /proc says of a process that may hang: the CPU time it and its descendants have had, and
// what it waits in.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "store/base/time.h"

namespace ddprun::process {

// The fields of /proc/PID/stat that matter here.
struct ProcessStat {
  char state = '?';
  std::uint64_t major_faults = 0;  // its own and those of the children it has waited for
  Duration cpu_time{};             // likewise
};

// `ticks_per_second`: the unit of the text's times, sysconf(_SC_CLK_TCK).  A text that is none
// gives the default.
ProcessStat parse_stat(std::string_view stat, long ticks_per_second);

// The bytes that a process has read and written, by the text of its /proc/PID/io: files, pipes, and
// sockets that are used like files.  A text that is none gives 0.
std::uint64_t parse_io(std::string_view io);

// A page that the kernel has had to read from a disk comes with its neighbours, as the default
// read-ahead has it.
inline constexpr std::uint64_t kBytesPerMajorFault = 128 * 1024;

struct ProcessStats {
  Duration cpu_time{};            // of the process and all below it
  std::uint64_t moved_bytes = 0;  // read, written and paged in by the same
  std::string doing;  // "sleeping in futex_do_wait", "stopped", "in D state in nfs_wait_bit"
};

// A process that has gone gives the default.
ProcessStats stats_of(pid_t pid);

// "in D state in nfs_wait_bit": what `pid` does, by its state and the kernel's function it waits
// in.
std::string doing_of(pid_t pid);

}  // namespace ddprun::process
