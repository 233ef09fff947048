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
  Duration cpu_time{};  // its own and that of the children it has waited for
};

// `ticks_per_second`: the unit of the text's times, sysconf(_SC_CLK_TCK).  A text that is none
// gives the default.
ProcessStat parse_stat(std::string_view stat, long ticks_per_second);

struct ProcessStats {
  Duration cpu_time{};
  std::string doing;  // "sleeping in futex_do_wait", "stopped", "in D state in nfs_wait_bit"
};

// A process that has gone gives the default.
ProcessStats stats_of(pid_t pid);

// "in D state in nfs_wait_bit": what `pid` does, by its state and the kernel's function it waits
// in.
std::string doing_of(pid_t pid);

}  // namespace ddprun::process
