// SPDX-License-Identifier: BSD-3-Clause
//
// ZeRO, stage 1 (Rajbhandari et al., 2020): each rank keeps the optimizer's state of a part of the
// parameters, steps these, and gives them to the other ranks.  As Python's
// ZeroRedundancyOptimizer, with the same parts.
//
//   ddp::ZeroRedundancyOptimizer<torch::optim::Adam> optimizer(
//       model.parameters(), group, torch::optim::AdamOptions(1e-3));
//   ...; loss.backward(); optimizer.step();
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// What does not depend on the local optimizer's class.  It is an optimizer of LibTorch over all
// parameters: schedulers, zero_grad() and the Checkpointer take it as any other.
//
// Each parameter belongs to one rank as a whole: those of each group, the largest first, to the
// rank that has the fewest elements so far.
//
// Threads: used from one thread.  All ranks construct, step and add groups together, with the
// gradients of DistributedDataParallel, which are the same on all; not within join(), whose ranks
// without inputs do not step.
class ShardedOptimizer : public torch::optim::Optimizer {
 public:
  // Steps this rank's own parameters by the settings of param_groups(), then takes over those of
  // the other ranks.  `closure` is called on every rank.
  at::Tensor step(LossClosure closure = nullptr) override;

  void add_param_group(const torch::optim::OptimizerParamGroup& group);

  // The parameters of each rank, by rank.
  const std::vector<std::vector<at::Tensor>>& parameters_by_rank() const { return by_rank_; }

  bool is_own(const at::Tensor& parameter) const;

  const torch::optim::Optimizer& local() const { return *local_; }

  // Gathers the state of all parameters in state() of rank `to`, as tensors on their devices, until
  // drop_consolidated_state() or the next step.  The Checkpointer does so for each save; a program
  // needs it only for what it saves itself.  All ranks call it.  Throws DdpError for an optimizer
  // of the program's own, whose state cannot be known.
  void consolidate_state(int to = 0);
  void drop_consolidated_state();
  bool has_consolidated_state() const { return is_consolidated_; }

  // Makes what state() has of this rank's parameters the local optimizer's state, and drops it
  // here.
  void keep_own_state();

  // LibTorch's own archives know nothing of the other ranks: both throw DdpError.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  using Groups = std::vector<torch::optim::OptimizerParamGroup>;
  using MakeLocal = std::function<std::unique_ptr<Optimizer>(const Groups& groups)>;

  // Throws the same DdpError on every rank if the ranks' parameters differ.
  ShardedOptimizer(const Groups& groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults,
                   ProcessGroup group, const MakeLocal& make_local);

 private:
  torch::optim::OptimizerParamGroup own_part(const torch::optim::OptimizerParamGroup& group);
  void pass_settings_on();
  void take_over_parameters();

  ProcessGroup group_;
  std::vector<std::int64_t> elements_by_rank_;
  std::vector<std::vector<at::Tensor>> by_rank_;
  std::unique_ptr<Optimizer> local_;
  bool is_consolidated_ = false;
};

// `Local` is a class of optimizer that steps each parameter for itself: LibTorch's but LBFGS, or
// one of the program's own with the same constructor.
template <class Local>
class ZeroRedundancyOptimizer : public ShardedOptimizer {
 public:
  template <class Options>
  ZeroRedundancyOptimizer(const Groups& groups, ProcessGroup group, const Options& options)
      : ShardedOptimizer(groups, std::make_unique<Options>(options), std::move(group),
                         [&](const Groups& own) { return std::make_unique<Local>(own, options); }) {
  }

  template <class Options>
  ZeroRedundancyOptimizer(std::vector<at::Tensor> parameters, ProcessGroup group,
                          const Options& options)
      : ZeroRedundancyOptimizer(Groups{torch::optim::OptimizerParamGroup(std::move(parameters))},
                                std::move(group), options) {}
};

}  // namespace ddprun::ddp
