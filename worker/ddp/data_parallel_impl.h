// SPDX-License-Identifier: BSD-3-Clause
//
// What DataParallelEngine holds; not installed.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "worker/ddp/data_parallel.h"
#include "worker/ddp/gradient_watch.h"

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
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // after the Reducer, which it looks at when it ends
  std::unique_ptr<GradientWatch> watch;  // none where parameters may be left out
  std::optional<Joining> joining;
  bool sync = true;
  bool are_buffers_due = true;  // the last forward synchronised, so the next one sends buffers

  std::int64_t synchronised_forwards = 0;

  // Whether this rank's gradients count as zero in this step; null until weighted() has asked for
  // it once, which is when the parameters get their hooks.
  std::shared_ptr<bool> is_muted;

  // Of a static graph: whether the one reduction after the first backward has been asked for.
  std::shared_ptr<bool> is_graph_known = std::make_shared<bool>(false);

  // Gives every rank the buffers of `root`, if the module has any and they are due.
  void send_buffers(int root);

  void rebuild_buckets();

  // Throws when the ranks' parameters differ, where the options ask for it.
  void check_now_and_then();

  // While joining, before a forward: tells the ranks that have no inputs left, and returns the
  // rank whose buffers count.
  int announce_step();

  // Takes part, with zeros, in what the ranks with inputs left do in one step.
  void shadow_step(bool is_synchronised);
};

}  // namespace ddprun::ddp
