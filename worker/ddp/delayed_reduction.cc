// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/delayed_reduction.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {

struct DelayedReduction::State {
  std::weak_ptr<c10d::Reducer> reducer;
  std::optional<int> pass;  // autograd's number of the one at whose end the Reducer is told
  bool is_told = false;
};

DelayedReduction::DelayedReduction(const std::shared_ptr<c10d::Reducer>& reducer)
    : state_(std::make_shared<State>(State{.reducer = reducer})) {}

// The first of the outputs' gradients to come is the occasion to ask for a call at the end.
void DelayedReduction::await_backward(const std::vector<at::Tensor>& outputs) {
  if (state_->is_told) return;
  for (const at::Tensor& output : outputs) {
    output.register_hook([state = state_](const at::Tensor&) {
      const int pass = torch::autograd::get_current_graph_task_id();
      if (state->is_told || state->pass == pass) return;
      if (state->pass) {
        throw DdpError(
            "backward() of a static graph that failed in its first step cannot be repeated: call "
            "forward() again before it");
      }
      state->pass = pass;
      torch::autograd::Engine::get_default_engine().queue_callback([state] {
        state->is_told = true;
        if (auto reducer = state->reducer.lock()) reducer->delay_all_reduce();
      });
    });
  }
}

bool DelayedReduction::is_over() const {
  return state_->is_told;
}

bool DelayedReduction::has_failed() const {
  return state_->pass && !state_->is_told;
}

}  // namespace ddprun::ddp
