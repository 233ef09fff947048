// SPDX-License-Identifier: BSD-3-Clause
//
// As which users the processes of this job run: a worker may be `su app ...` under an agent that is
// root's.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <utility>

#include "store/base/time.h"
#include "worker/process/sweep.h"

namespace ddprun::process {

// Threads: one at a time.
class UsersBelow {
 public:
  // Only the descendants within `scope` count.
  explicit UsersBelow(std::shared_ptr<const SweepScope> scope) : scope_(std::move(scope)) {}

  // Whether a process that a worker has started runs as `user`.  It looks into /proc, at most once
  // a second for each user, which takes milliseconds.
  bool have(uid_t user, MonoTime now);

 private:
  struct Look {
    MonoTime at{};
    bool has_found = false;
  };

  std::shared_ptr<const SweepScope> scope_;
  std::map<uid_t, Look> looks_;
};

}  // namespace ddprun::process
