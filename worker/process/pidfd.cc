// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/pidfd.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "worker/process/proc_files.h"

namespace ddprun::process {

Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

SignalTarget::SignalTarget(pid_t pid) : pid_(pid), pidfd_(open_pidfd(pid)) {
  if (!pidfd_ && errno != ESRCH) start_time_ = start_time_of(pid);
}

void SignalTarget::send(int signal) const {
  if (pidfd_) {
    if (::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0) == 0) return;
    // A filter may allow the one call and not the other.  While the process lives, its number is
    // its own.
    const bool is_refused = errno != ESRCH;
    pollfd polled{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    if (is_refused && ::poll(&polled, 1, 0) == 0) ::kill(pid_, signal);
  } else if (start_time_ != 0 && start_time_of(pid_) == start_time_) {
    ::kill(pid_, signal);
  }
}

}  // namespace ddprun::process
