// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include "store/base/fd.h"

namespace ddprun::process {

// The pidfd of a process, which need not be a child; closed where there is none.  To be opened
// before the process is looked at in /proc: what is sent to the pidfd afterwards reaches no other
// process, even if the pid is used again meanwhile.
Fd open_pidfd(pid_t pid);

// Sends `signal` to the process.  Does nothing if it has ended.
void send_signal(const Fd& pidfd, int signal);

}  // namespace ddprun::process
