// SPDX-License-Identifier: BSD-3-Clause
//
// The one reduction of a static graph that comes after the backward pass instead of during it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace c10d {
class Reducer;
}

namespace ddprun::ddp {

// In the first step of a static graph the Reducer only counts how often each parameter is used, and
// reduces when it is told that the backward pass is over.  Owns the knowledge of whether it has
// been told.
//
// Threads: used from one thread; the Reducer is told on the thread of backward(), at its end.
// Lifetime: the outputs may outlive it and the Reducer.
class DelayedReduction {
 public:
  explicit DelayedReduction(const std::shared_ptr<c10d::Reducer>& reducer);

  // Waits for the backward pass of `outputs`, the results of one forward.  Does nothing after the
  // first pass that has come to its end.  When a pass has failed, the next one throws DdpError: the
  // Reducer has counted a part of the failed one, and is to be made anew before the next forward.
  void await_backward(const std::vector<at::Tensor>& outputs);

  // Whether a pass has come to its end.  Not asked while one runs.
  bool is_over() const;

  // Whether a pass has begun and not come to its end.  Not asked while one runs.
  bool has_failed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks on the outputs hold it as well
};

}  // namespace ddprun::ddp
