// SPDX-License-Identifier: BSD-3-Clause
//
// Ends what workers leave behind: children that outlived them, in whatever session or process
// group.  It relies on this process being their subreaper, which makes every descendant findable
// below it in /proc, however often it forked.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <set>
#include <string>
#include <vector>

#include "store/base/time.h"
#include "worker/process/reaper.h"

namespace ddprun::process {

struct Leftover {
  pid_t pid = -1;
  std::string name;  // the kernel's comm, at most 15 bytes
};

// "python3 (4211), sleep (4212)", and how many more beyond the first few.
std::string to_string(const std::vector<Leftover>& leftovers);

// Every living descendant of this process but those in `spared`.  Ended ones that nobody has
// collected do not count.  None where /proc is missing or that of another namespace.
std::vector<Leftover> descendants(const std::set<pid_t>& spared = {});

// Every living descendant of `pid`.
std::vector<Leftover> descendants_of(pid_t pid, const std::set<pid_t>& spared = {});

struct SweepResult {
  std::vector<Leftover> found;  // what had been left behind
  // What did not even end by SIGKILL; its name says what it does: "dd, in D state in nfs_wait".
  std::vector<Leftover> stuck;
};

// Sends SIGTERM to every descendant, and at `deadline` SIGKILL, until none is left.  Returns at
// once when there is none, and at the latest two seconds after `deadline`.  Call it only when no
// worker runs: it makes no difference between workers and what they left.  `deadline` is read anew
// at each look, at least every 100 ms, so that the caller may bring it forward meanwhile.  Those in
// `spared` are left alone, but not what they have started.
boost::asio::awaitable<SweepResult> sweep(Reaper& reaper, const MonoTime& deadline,
                                          std::set<pid_t> spared = {});

}  // namespace ddprun::process
