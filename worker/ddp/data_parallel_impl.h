// SPDX-License-Identifier: BSD-3-Clause
//
// What DataParallelEngine holds; not installed.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "worker/ddp/buffer_sync.h"
#include "worker/ddp/data_parallel.h"
#include "worker/ddp/gradient_mute.h"
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
  BufferSync buffers{group, module, options.broadcast_buffers};
  ReplicaCheck replica_check{group, module, options.check_replicas_every};
  GradientMute mute{module};
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;   // after the Reducer, which it looks at when it ends
  std::optional<LeftOutReport> left_out;  // none where parameters may be left out
  std::optional<Joining> joining;
  bool sync = true;

  // Of a static graph: whether the one reduction after the first backward has been asked for.
  std::shared_ptr<bool> is_graph_known = std::make_shared<bool>(false);

  void rebuild_buckets();

  // While joining, before a forward: tells the ranks that have no inputs left, and returns the
  // rank whose buffers count.
  int announce_step();

  // Takes part, with zeros, in what the ranks with inputs left do in one step.
  void shadow_step(bool is_synchronised);
};

}  // namespace ddprun::ddp
