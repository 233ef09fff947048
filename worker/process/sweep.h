// SPDX-License-Identifier: BSD-3-Clause
//
// Ends what workers leave behind: children that outlived them, in whatever session or process
// group.  It relies on this process being their subreaper, which makes every descendant findable
// below it in /proc, however often it forked.
//
// Not all that is below this process stems from a worker: it may have had children before it became
// ddprun (`monitor & exec ddprun ...`), and process 1 of a container inherits every orphan.
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "store/base/time.h"
#include "worker/process/marks.h"
#include "worker/process/reaper.h"

namespace ddprun::process {

struct Leftover {
  pid_t pid = -1;
  std::string name;  // the kernel's comm, at most 15 bytes
  pid_t parent = -1;
};

// "python3 (4211), sleep (4212)", and how many more beyond the first few.
std::string to_string(const std::vector<Leftover>& leftovers);

// Processes that were below this one at a time; what they start later belongs to them.
class Bystanders {
 public:
  Bystanders() = default;

  // Those that are there now.
  static Bystanders note();

  // Whether `pid` is one of them, and not another process with its number.
  bool has(pid_t pid) const;

 private:
  std::map<pid_t, std::uint64_t> started_at_;  // by pid: clock ticks since boot
};

// Process groups that have got a signal which is to end them.
struct AskedGroups {
  int signal = 0;
  std::set<pid_t> groups;
};

// What a sweep leaves alone.
struct SweepScope {
  std::set<pid_t> spared;           // but not what they have started
  std::set<pid_t> spared_sessions;  // likewise, all that are in one of these
  Bystanders bystanders;            // and what they have started
  // Their members that catch the signal have until the deadline, without SIGTERM.
  AskedGroups asked;
  // Those of torch, see is_shm_manager(): either they are left alone, or they are all that the
  // sweep waits for, and they get no SIGTERM.
  bool is_for_shm_managers = false;
  // Of this process's own children, all that carry none of these, with what they have started;
  // nullopt: none.
  std::optional<Marks> marks;
};

// Every living descendant of this process within `scope`.  Ended ones whose parent has not waited
// for them do not count.  None where obstacle_to_sweep() says why.
std::vector<Leftover> descendants(const SweepScope& scope = {});

// Every living descendant of `pid`.
std::vector<Leftover> descendants_of(pid_t pid);

// Why what workers leave behind cannot be found here; "" where it can.  `proc`: where /proc is.
std::string obstacle_to_sweep(const std::string& proc = "/proc");

struct SweepResult {
  std::vector<Leftover> found;  // what had been left behind, without Python's own helpers
  // What did not even end by SIGKILL; its name says what it does: "dd, in D state in nfs_wait".
  std::vector<Leftover> stuck;
};

// Sends SIGTERM to every descendant that has not been asked otherwise, and at `deadline` SIGKILL,
// until none is left.  Returns at once when there is none, and at the latest two seconds after
// `deadline`.  Call it only when no worker runs: it makes no difference between workers and what
// they left.  `deadline` is read anew at each look, at least every 100 ms, so that the caller may
// bring it forward meanwhile.
boost::asio::awaitable<SweepResult> sweep(Reaper& reaper, const MonoTime& deadline,
                                          SweepScope scope = {});

}  // namespace ddprun::process
