// SPDX-License-Identifier: BSD-3-Clause
//
// Closes what a new process is not to have.
#pragma once

namespace ddprun::process {

// Closes all descriptors from `first` on, also where the kernel or a filter of system calls (an
// older container's) refuses close_range: then those that /proc names, or all that may be open.
// Safe in the child of a process with several threads: takes no memory and no lock.
void close_from(unsigned first);

}  // namespace ddprun::process
