// SPDX-License-Identifier: BSD-3-Clause
//
// Post-local SGD (Lin et al., 2018): after some steps the ranks reduce gradients only within
// subgroups, such as the ranks of a node, and take the mean of all ranks' parameters now and then.
// As Python's post_localSGD_hook, PeriodicModelAverager and PostLocalSGDOptimizer.
//
//   ddp::PostLocalSgdState state({.start_iteration = 100, .subgroup = my_node});
//   ddp::DDP<Net> model(net, group, {.comm_hook = state.hook()});
//   torch::optim::SGD sgd(model.parameters(), 0.01);
//   ddp::PostLocalSgdOptimizer optimizer(sgd, {group, /*period=*/4, /*warmup_steps=*/100});
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "worker/ddp/comm_hooks.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/stateful.h"

namespace ddprun::ddp {

struct PostLocalSgdOptions {
  // The steps before are reduced over all ranks.
  std::int64_t start_iteration = 0;

  // The ranks that reduce gradients together afterwards, this one among them.
  std::optional<ProcessGroup> subgroup{};

  // Without it each rank keeps its own gradients afterwards, and needs no subgroup.
  bool post_local_gradient_allreduce = true;
};

// Counts the steps of one DistributedDataParallel, for its hook.  A run that goes on from a
// checkpoint needs the count back, and the averager's:
//
//   TrainingState saved{.model = *net, .optimizer = &sgd,
//                       .stateful = {{"hook", &state}, {"averager", &optimizer.averager()}}};
//
// Save after an average: then the ranks have the same parameters, of which a checkpoint has rank
// 0's.  Of what the optimizer keeps, such as a momentum, all ranks go on with rank 0's.
//
// Threads: used from the training thread, between two steps.
class PostLocalSgdState : public Stateful {
 public:
  // Throws DdpError for options out of range and for a subgroup that is missing.
  explicit PostLocalSgdState(const PostLocalSgdOptions& options);

  // The hook, which shares the count with this object and may outlive it.  The parameters of the
  // ranks differ between two averages: not together with check_replicas_every.
  CommHook hook() const;

  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  PostLocalSgdOptions options_;
  std::shared_ptr<std::int64_t> iteration_;
};

// The hook of a state that is in no checkpoint.
CommHook post_local_sgd_hook(const PostLocalSgdOptions& options);

// Takes the mean of the ranks' parameters every `period` steps, the first time after `warmup_steps`
// steps.
//
// Threads: used from one thread.
class PeriodicModelAverager : public Stateful {
 public:
  // Throws DdpError if `period` is below 1 or `warmup_steps` below 0.
  PeriodicModelAverager(ProcessGroup group, std::int64_t period, std::int64_t warmup_steps = 0);

  // Called once for each step, after that of the optimizer, on all ranks.  Parameters without a
  // gradient are left as they are; they must be the same on all ranks.
  void average_parameters(const std::vector<at::Tensor>& parameters);

  // How often average_parameters() was called.
  std::int64_t step() const { return step_; }

  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  ProcessGroup group_;
  std::int64_t period_;
  std::int64_t warmup_steps_;
  std::int64_t step_ = 0;
};

// Steps with the `local` optimizer, which must outlive it, and then averages.  Schedulers and the
// Checkpointer take the local one; the averager belongs into the checkpoint as well.
class PostLocalSgdOptimizer {
 public:
  PostLocalSgdOptimizer(torch::optim::Optimizer& local, PeriodicModelAverager averager)
      : local_(local), averager_(std::move(averager)) {}

  at::Tensor step(torch::optim::Optimizer::LossClosure closure = nullptr);
  void zero_grad(bool set_to_none = true) { local_.zero_grad(set_to_none); }
  PeriodicModelAverager& averager() { return averager_; }

 private:
  torch::optim::Optimizer& local_;
  PeriodicModelAverager averager_;
};

}  // namespace ddprun::ddp
