// SPDX-License-Identifier: BSD-3-Clause
//
// Lets a rank add nothing to the mean of a step, whatever its loss is.
#pragma once

#include <torch/nn/module.h>

#include <memory>

namespace ddprun::ddp {

// Owns the flag that says whether this rank's gradients count as zero.  The first mute() gives the
// module's parameters hooks that obey it and stay with them.
//
// Threads: used from one thread, while no backward pass runs; the hooks may run on autograd's.
class GradientMute {
 public:
  explicit GradientMute(std::shared_ptr<torch::nn::Module> module) : module_(std::move(module)) {}
  ~GradientMute() { lift(); }
  GradientMute(const GradientMute&) = delete;
  GradientMute& operator=(const GradientMute&) = delete;

  // Makes the gradients of the module's parameters zero until lift(), also those that are NaN or
  // infinite.  Returns `loss`, a scalar, as a zero with its graph, whose backward still brings
  // every parameter a gradient.
  at::Tensor mute(const at::Tensor& loss);

  void lift();

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<bool> is_muted_;  // null before the first mute(); the hooks hold it as well
};

}  // namespace ddprun::ddp
