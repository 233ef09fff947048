// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/pidfd.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace ddprun::process {

Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

void send_signal(const Fd& pidfd, int signal) {
  if (pidfd) ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
}

}  // namespace ddprun::process
