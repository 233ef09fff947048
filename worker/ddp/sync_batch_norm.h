// SPDX-License-Identifier: BSD-3-Clause
//
// Batch normalisation over the batches of all ranks, for training with few samples on each.
//
//   struct NetImpl : torch::nn::Module {
//     ddprun::ddp::SyncBatchNorm norm{16};      // in the place of torch::nn::BatchNorm2d
//   };
//   Net net;
//   ddprun::ddp::convert_sync_batchnorm(*net, group);   // before DistributedDataParallel is made
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// As Python's torch.nn.SyncBatchNorm: in training mode mean and variance are those of the values of
// all ranks, whatever the sizes of their batches, and so are the gradients and the running
// statistics.  In eval mode, without a group, and in a group of one rank it is BatchNorm.  Unlike
// Python's it also takes tensors on the CPU.
//
// forward() takes inputs [samples, channels, ...] of 2 dimensions or more; a rank may have no
// samples.  All ranks call it together, and run the backward pass through it alike; each is a small
// collective of the group.  So not within join(), in which ranks without inputs answer nothing.  It
// has no second derivative: a backward pass that makes a graph throws DdpError.
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
 public:
  explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_,
                             std::optional<ProcessGroup> group = std::nullopt);

  torch::Tensor forward(const torch::Tensor& input);

  void set_group(ProcessGroup group) { group_ = std::move(group); }

  // Takes over the parameters themselves, the running statistics and the mode of `other`, a
  // BatchNorm1d, 2d or 3d of the same options.
  template <class BatchNorm>
  void take_over(const BatchNorm& other) {
    take_tensors(other.weight, other.bias, other.running_mean, other.running_var,
                 other.num_batches_tracked);
    train(other.is_training());
  }

  void pretty_print(std::ostream& stream) const override;

 protected:
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  void take_tensors(const torch::Tensor& other_weight, const torch::Tensor& other_bias,
                    const torch::Tensor& other_mean, const torch::Tensor& other_var,
                    const torch::Tensor& other_count);
  double next_momentum();

  std::optional<ProcessGroup> group_;
};
TORCH_MODULE(SyncBatchNorm);

// Makes every batch normalisation in `module` one over the ranks of `group`: SyncBatchNorms get the
// group, and each BatchNorm1d, 2d or 3d in a torch::nn::Sequential is replaced by a SyncBatchNorm
// with its parameters, statistics and mode.  Elsewhere the type of a member of a C++ class is
// fixed: for a BatchNorm there it throws DdpError, which names it, and changes nothing; declare it
// as a SyncBatchNorm, which is one as long as it has no group.  Before the module is wrapped.
void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group);

}  // namespace ddprun::ddp
