// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/delayed_reduction.h"

#include <torch/csrc/autograd/engine.h>

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace ddprun::ddp {

struct DelayedReduction::State {
  std::weak_ptr<c10d::Reducer> reducer;
  bool is_asked = false;  // for the reduction at the end of a pass
};

DelayedReduction::DelayedReduction(const std::shared_ptr<c10d::Reducer>& reducer)
    : state_(std::make_shared<State>(State{.reducer = reducer})) {}

// The first of the outputs' gradients to come is the occasion to ask for a call at the end.
void DelayedReduction::await_backward(const std::vector<at::Tensor>& outputs) {
  if (state_->is_asked) return;
  for (const at::Tensor& output : outputs) {
    output.register_hook([state = state_](const at::Tensor&) {
      if (state->is_asked) return;
      state->is_asked = true;
      torch::autograd::Engine::get_default_engine().queue_callback([weak = state->reducer] {
        if (auto reducer = weak.lock()) reducer->delay_all_reduce();
      });
    });
  }
}

}  // namespace ddprun::ddp
