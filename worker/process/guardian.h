// SPDX-License-Identifier: BSD-3-Clause
//
// Ends what workers have started if the agent is killed with SIGKILL.  The kernel ends the workers
// then (parent-death signal), but not what they had started.  The guardian is a small process that
// is forked before any worker.  It waits for the agent's end and then kills every process that
// carries one of the agent's marks (worker/process/marks.h).  It kills nothing where /proc is that
// of another namespace of process ids.
//
// It also holds the workers' lease, since it does nothing else: the agent renews the lease, and
// where it does not, because it stands still (SIGSTOP, a debugger, a disk), the guardian kills the
// workers at its end.  A guardian that finds that it has itself slept past that end, as on a
// machine that was paused, stops the workers (SIGSTOP) instead until the agent renews the lease.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <utility>

#include "store/base/error.h"
#include "store/base/fd.h"
#include "store/base/time.h"
#include "worker/process/marks.h"

namespace ddprun::process {

// A signal that came to the guardian, and from whom (0: from outside of its pid namespace).
struct SignalReport {
  int signal = 0;
  int sender = 0;
};

// Threads: used from the thread that starts workers.
// Lifetime: when it is destroyed the guardian goes without doing anything, also one that stands
// still, and is waited for, for two seconds at most.  A process that is forked from this
// one and does not exec must not keep it.
class Guardian {
 public:
  // Says in the agent's name that no worker of it lives; called in the guardian's process.
  using Deliver = std::function<void(std::string_view last_word)>;

  // Forks the guardian.  It has a session of its own and no open descriptor but its ends of two
  // pipes.  Once all workers of a killed agent have ended it calls `deliver` with the last word
  // that the agent has left, if there is one.  Where none can be forked now, pid() is -1, and
  // start_again() may succeed later.  Fails with the system's code; the run can go on without it.
  static Result<Guardian> start(Marks marks, Deliver deliver = nullptr);

  // The workers must be dead at `end`, unless it is renewed before; MonoTime::max(): there is
  // nothing to end.  A guardian that has stood still for long, and has read none of many renewals,
  // does not get this one; the next finds room when it runs again.  Having slept past it, the
  // guardian holds them for at most `patience`.
  void renew_lease(MonoTime end, Duration patience);
  MonoTime lease_end() const { return lease_end_; }

  // What `deliver` is to be called with; at most kMaxLastWord bytes.  Of a longer one nothing is
  // kept, and nothing of the one before: it may not be true any more.  Where the guardian stands
  // still, and takes none now, it gets it with a later renewal of the lease.
  void leave_last_word(std::string last_word);
  static constexpr std::size_t kMaxLastWord = 3 * 1024;

  // Forks another one, when the process of the former has ended; its reports come by the same pipe.
  // Fails with the system's code, and may be tried again.
  Result<void> start_again();

  Guardian(Guardian&&) = default;
  Guardian& operator=(Guardian&&) = delete;
  ~Guardian();

  // The guardian's process, a child of this one; it may have ended.  -1: none is there.
  int pid() const { return pid_; }

  // The end of a pipe with a SignalReport of each signal that reaches the guardian, which none of
  // them ends.  It lives in a session of its own like the workers, so what reaches it unasked was
  // sent to them, too.  To be taken once.
  Fd take_reports() { return std::move(reports_); }

 private:
  Guardian(Marks marks, Deliver deliver) : marks_(std::move(marks)), deliver_(std::move(deliver)) {}
  bool write(const std::string& message);
  void write_last_word();
  void drain_pipe();
  void dismiss();

  Marks marks_;
  Deliver deliver_;
  MonoTime lease_end_ = MonoTime::max();
  std::string lease_;            // the message about it that was written last
  std::string last_word_;        // likewise
  bool owes_last_word_ = false;  // it has not found room in the pipe
  Fd pipe_;  // the agent's end; its end of file, without a goodbye before, is the agent's death
  Fd guardians_pipe_;
  Fd reports_;
  Fd guardians_reports_;
  int pid_ = -1;
  bool is_successor_ = false;  // the next one
};

}  // namespace ddprun::process
