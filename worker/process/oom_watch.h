// SPDX-License-Identifier: BSD-3-Clause
//
// Reads what the kernel says about deaths for want of memory.
#pragma once

#include <string>
#include <vector>

#include "store/base/fd.h"
#include "worker/process/decide/oom_evidence.h"

namespace ddprun::process {

// Threads: any one at a time.  A file that cannot be read says nothing, and is never a failure.
class OomWatch {
 public:
  // Takes the first reading.  `root` stands before /proc, /sys and /dev: for tests.
  explicit OomWatch(std::string root = "");

  // What the kernel says about the end of the worker `pid` since the last call, or "".
  // See oom_words().  Takes a few small files' reading: some 100 us.  `leaf`: the worker's own
  // cgroup of version 2, if it has one; where that counts memory, it alone says whose death it was.
  std::string words_on(int pid, bool is_killed, const std::string& leaf = "");

 private:
  OomReading read() const;
  std::vector<KernelKill> new_kernel_kills() const;

  std::string root_;
  std::vector<std::string> cgroup_folders_;  // ours, then its ancestors, to the mount point
  bool is_v2_ = false;
  Fd kmsg_;  // from its end on; closed where it cannot be read
  OomReading before_;
};

}  // namespace ddprun::process
