// SPDX-License-Identifier: BSD-3-Clause
//
// Learns of the end of other processes when it happens, whatever ends them.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp::shm {

// Threads: `on_death` is called on a thread of the watch's own, once for each process.
// Lifetime: after the destructor it is not called any more.
class DeathWatch {
 public:
  // Watches the processes `pids`, which are alive; their index is what `on_death` is given.
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
