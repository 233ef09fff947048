// SPDX-License-Identifier: BSD-3-Clause
//
// Gives the parameters of a wrapped module values of low precision for a forward and its backward,
// and their own values and gradients back for the optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <memory>

#include "worker/ddp/comm_hooks.h"
#include "worker/ddp/mixed_precision.h"
#include "worker/ddp/reducer_config.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// Throws DdpError for options that do not go together with mixed_precision, and for a dtype that is
// not a floating-point one.
void check_mixed_precision(const DataParallelOptions& options);

// Owns the parameters' own values while they have others.
//
// A parameter of another dtype has another gradient accumulator, which LibTorch makes anew; so the
// hooks that c10d's Reducer and GradientWatch have put on the first ones are never called, and
// `on_gradient` is in their place.
//
// Threads: used from one thread; on_gradient runs on autograd's, and hook() on that of backward().
// Lifetime: the module may outlive it.
class LowPrecision {
 public:
  // Called with the index of a trainable parameter (ReducerConfig) whose gradient is complete.
  using OnGradient = std::function<void(std::size_t index)>;

  LowPrecision(const SyncedModule& module, const ReducerConfig& config,
               const MixedPrecision& options);
  ~LowPrecision();
  LowPrecision(const LowPrecision&) = delete;
  LowPrecision& operator=(const LowPrecision&) = delete;

  void set_on_gradient(OnGradient on_gradient);

  // Casts the buffers, for good.
  void cast_buffers();

  // Before a forward.  Does nothing, and returns false, if the parameters are low already: no
  // backward that reduces has come since.  Throws DdpError if they were changed after the forward
  // before and while they were low, which is lost.
  bool lower();

  // Gives the parameters and gradients their own dtype.  The last reduction of a backward pass has
  // it done at the pass's end; a forward without gradients and one that has thrown need it as well.
  void raise();

  // The hook that reduces gradients in reduce_dtype, by which they come to the parameters' own.
  CommHook hook() const;

  // `tensor` as forward() is to see it, until after_forward().
  at::Tensor& input(const at::Tensor& tensor);
  void after_forward();

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks hold it as well
  std::deque<at::Tensor> inputs_;
};

}  // namespace ddprun::ddp
