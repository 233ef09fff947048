// SPDX-License-Identifier: BSD-3-Clause
//
// What DataParallelEngine holds; not installed.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "worker/ddp/buffer_sync.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/gradient_mute.h"
#include "worker/ddp/gradient_reducer.h"
#include "worker/ddp/left_out_report.h"
#include "worker/ddp/replica_check.h"

namespace ddprun::ddp {

// A time in which ranks may run out of inputs (join.cc).
struct Joining {
  JoinOptions options;
  std::vector<int> last_active;  // the ranks that took the last step, as all ranks know it
};

struct DataParallelEngine::Impl {
  std::shared_ptr<torch::nn::Module> module;
  ProcessGroup group;
  DataParallelOptions options;
  GradientReducer reducer;
  BufferSync buffers{group, module, options.broadcast_buffers};
  ReplicaCheck replica_check{group, module, options.check_replicas_every};
  GradientMute mute{module};
  std::optional<LeftOutReport> left_out;  // none where parameters may be left out
  std::optional<Joining> joining;
  bool sync = true;

  // While joining, before a forward: tells the ranks that have no inputs left, and returns the
  // rank whose buffers count.
  int announce_step();

  // Takes part, with zeros, in what the ranks with inputs left do in one step.
  void shadow_step(bool is_synchronised);
};

}  // namespace ddprun::ddp
