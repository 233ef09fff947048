// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a guardian beside the agent: one that ends is replaced.
#pragma once

#include <spdlog/fwd.h>
#include <sys/types.h>

#include <memory>
#include <set>

#include "worker/process/guardian.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper and `spared`, the children that a sweep leaves alone, into which it
// puts the guardian while that runs.  The reaper must end first, or nothing may run any more.
class GuardianWatch {
 public:
  // `guardian`: nullptr for none.
  GuardianWatch(process::Reaper& reaper, std::set<pid_t>& spared,
                std::shared_ptr<process::Guardian> guardian,
                std::shared_ptr<spdlog::logger> logger);

 private:
  void watch();
  void ended(process::ExitStatus status);

  process::Reaper& reaper_;
  std::set<pid_t>& spared_;
  std::shared_ptr<process::Guardian> guardian_;
  std::shared_ptr<spdlog::logger> logger_;
  int lost_ = 0;
};

}  // namespace ddprun::agent
