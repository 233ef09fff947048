// SPDX-License-Identifier: BSD-3-Clause
//
// Ends what workers have started if the agent is killed with SIGKILL.  The kernel ends the workers
// then (parent-death signal), but not what they had started.  The guardian is a small process that
// is forked before any worker.  It waits for the agent's end and then kills every process that
// carries one of the agent's marks (worker/process/marks.h).  It kills nothing where /proc is that
// of another namespace of process ids.
#pragma once

#include <utility>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "worker/process/marks.h"

namespace ddprun::process {

// A signal that came to the guardian, and from whom (0: from outside of its pid namespace).
struct SignalReport {
  int signal = 0;
  int sender = 0;
};

// Threads: used from the thread that starts workers.
// Lifetime: when it is destroyed the guardian goes without doing anything.  A process that is
// forked from this one and does not exec must not keep it.
class Guardian {
 public:
  // Forks the guardian.  It has a session of its own and no open descriptor but its ends of two
  // pipes.  Fails with the system's code; the run can go on without it.
  static Result<Guardian> start(Marks marks);

  // Forks another one, when the process of the former has ended; its reports come by the same pipe.
  Result<void> start_again();

  Guardian(Guardian&&) = default;
  Guardian& operator=(Guardian&&) = default;
  ~Guardian();

  // The guardian's process; a child of this one.
  int pid() const { return pid_; }

  // The end of a pipe with a SignalReport of each signal that reaches the guardian, which none of
  // them ends.  It lives in a session of its own like the workers, so what reaches it unasked was
  // sent to them, too.  To be taken once.
  Fd take_reports() { return std::move(reports_); }

 private:
  explicit Guardian(Marks marks) : marks_(std::move(marks)) {}

  Marks marks_;
  Fd pipe_;  // the agent's end; its end of file, without a byte before, is the agent's death
  Fd guardians_pipe_;
  Fd reports_;
  Fd guardians_reports_;
  int pid_ = -1;
};

}  // namespace ddprun::process
