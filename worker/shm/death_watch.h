// SPDX-License-Identifier: BSD-3-Clause
//
// Detects the end of other processes as it happens, whatever its cause.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp::shm {

// Threads: `on_death` runs on the watch's own thread, once for each process.
// Lifetime: `on_death` is not called after the destructor.
class DeathWatch {
 public:
  // Watches the processes `pids`, which must be alive; `on_death` is given an index into `pids`.
  static Result<std::unique_ptr<DeathWatch>> start(const std::vector<int>& pids,
                                                   std::function<void(int)> on_death);

  DeathWatch(const DeathWatch&) = delete;
  ~DeathWatch();

 private:
  DeathWatch() = default;
  void run(const std::function<void(int)>& on_death);

  std::vector<int> pidfds_;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace ddprun::ddp::shm
