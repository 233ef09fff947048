// SPDX-License-Identifier: BSD-3-Clause
//
// What a process that may hang has done: the CPU time that it and its descendants have had, the
// bytes that they have moved, and what it waits in.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "store/base/time.h"

namespace ddprun::process {

struct ProcessStats {
  Duration cpu_time{};            // of the process and all below it
  std::uint64_t moved_bytes = 0;  // read, written and paged in by the same
  std::string doing;  // "sleeping in futex_do_wait", "stopped", "in D state in nfs_wait_bit"
};

// A process that has gone gives the default.
ProcessStats stats_of(pid_t pid);

}  // namespace ddprun::process
