// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "store/base/fd.h"

namespace ddprun::process {

// The pidfd of a process, which need not be a child; closed where there is none, or where the
// system gives none (a seccomp filter, a limit on descriptors).
Fd open_pidfd(pid_t pid);

// A process that is to be signalled.  To be made before the process is looked at in /proc: what is
// sent afterwards reaches no other process, even if the pid is used again meanwhile.
//
// That holds by a pidfd.  Where the system gives none, it holds by the time at which the process
// was started, which is looked at again just before the signal: not quite as sure, but a process
// that must die is not left alone because of it.
class SignalTarget {
 public:
  explicit SignalTarget(pid_t pid);

  // Sends `signal` to the process.  Does nothing if it has ended.
  void send(int signal) const;

  // Closed where the system gives none.
  const Fd& pidfd() const { return pidfd_; }

 private:
  pid_t pid_;
  Fd pidfd_;
  std::uint64_t start_time_ = 0;  // without a pidfd; 0: there is no such process
};

}  // namespace ddprun::process
