// SPDX-License-Identifier: BSD-3-Clause
//
// What remains when the agent is killed with SIGKILL.  The kernel ends the workers then
// (parent-death signal), but not what they had started, and nobody is left to look for it below the
// agent in /proc.  A guardian, a small process forked before anything else, waits for the agent's
// end and kills every process that carries the agent's mark in its environment.
#pragma once

#include <string>

#include "store/base/error.h"
#include "worker/process/fd.h"

namespace ddprun::process {

// The variable that marks everything a worker starts; its value is mark() of the agent's guardian.
inline constexpr const char* kGuardianVariable = "DDPRUN_AGENT";

// Threads: to be started while this process has one thread.
// Lifetime: when it is destroyed the guardian goes without doing anything.  A process that is
// forked from this one and does not exec must not keep it.
class Guardian {
 public:
  // Forks the guardian.  It has a session of its own and no open descriptor but its end of a pipe.
  // Fails with the system's code; the run can go on without it.
  static Result<Guardian> start();

  Guardian(Guardian&&) = default;
  Guardian& operator=(Guardian&&) = default;
  ~Guardian();

  const std::string& mark() const { return mark_; }
  int pid() const { return pid_; }

 private:
  Guardian(std::string mark, Fd pipe, int pid)
      : mark_(std::move(mark)), pipe_(std::move(pipe)), pid_(pid) {}

  std::string mark_;
  Fd pipe_;  // its end of file, without a word before, is the agent's death
  int pid_;
};

}  // namespace ddprun::process
