// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradient_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <optional>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

}  // namespace

// A backward pass within another one, as activation checkpointing makes, is a part of that one.
struct GradientWatch::State : std::enable_shared_from_this<State> {
  AtEnd at_end;
  bool is_static = false;
  std::vector<std::pair<std::uintptr_t, Accumulator>> hooks;

  struct Pass {
    int number = 0;                // autograd's
    bool is_from_outputs = false;  // it has reached an output
    bool has_brought_any = false;
  };
  // What has come since expect().
  struct Step {
    bool has_outputs = false;
    bool has_reached_output = false;
    bool has_reduced = false;
    std::vector<std::optional<int>> came_in;  // the pass that has brought each gradient
  };

  std::mutex mutex;          // gradients on several devices come on several threads
  std::optional<Pass> pass;  // the one that runs, or that has failed
  Step step;
  bool is_expecting = false;
  bool has_others = false;  // gradients that came while none were expected
  bool has_learned = false;
  std::vector<char> is_wanted;

  void reached_output() {
    const int current = torch::autograd::get_current_graph_task_id();
    std::lock_guard lock(mutex);
    if (!pass || pass->number != current) {
      if (pass && is_static && !has_learned) {
        throw DdpError(
            "backward() of a static graph that failed in its first step cannot be repeated: call "
            "forward() again before it");
      }
      begin(current);
    }
    pass->is_from_outputs = true;
    step.has_reached_output = true;
  }

  void arrived(std::size_t index) {
    std::lock_guard lock(mutex);
    if (!pass) {
      has_others = has_others || !is_expecting;
      if (!is_expecting) return;
      begin(torch::autograd::get_current_graph_task_id());
    }
    pass->has_brought_any = true;
    if (is_aside()) return;
    std::optional<int>& came_in = step.came_in[index];
    if (pass->is_from_outputs && came_in && came_in != pass->number) {
      pass->is_from_outputs = false;  // what the program does with its parameters is another pass
      throw DdpError(
          "backward() was called again after the gradients of this step were reduced; what it adds "
          "would stay on this rank. Call backward() once after each forward(), with the sum of the "
          "losses, or run the earlier forwards and their backwards within no_sync()");
    }
    came_in = pass->number;
  }

  // A static graph may use parameters beside its outputs, as a penalty on them does, before the
  // outputs' own backward: the Reducer counts such a use, and waits for the others of the step.
  bool is_aside() const {
    return is_static && step.has_outputs && !pass->is_from_outputs && !step.has_reached_output;
  }

  void begin_step() { step = {.came_in = std::vector<std::optional<int>>(is_wanted.size())}; }

  void begin(int current) {
    pass = Pass{.number = current};
    torch::autograd::Engine::get_default_engine().queue_callback(
        [weak = weak_from_this(), current] {
          if (auto state = weak.lock()) state->ended(current);
        });
  }

  void ended(int number) {
    std::vector<std::size_t> missing;
    {
      std::lock_guard lock(mutex);
      if (!pass || pass->number != number) return;
      if (!pass->has_brought_any || is_aside()) {
        pass.reset();
        return;
      }
      const bool learns = is_static && !has_learned;
      for (std::size_t i = 0; i < step.came_in.size(); ++i) {
        if (learns) is_wanted[i] = step.came_in[i].has_value();
        if (is_wanted[i] && !step.came_in[i]) missing.push_back(i);
        if (learns) step.came_in[i] = number;  // all are reduced now, and others not in this step
      }
      has_learned = true;
      step.has_reduced = true;
    }
    at_end(missing);  // what it throws is a failure of the pass
    std::lock_guard lock(mutex);
    pass.reset();
  }
};

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters, bool is_static,
                             AtEnd at_end)
    : state_(std::make_shared<State>()) {
  state_->at_end = std::move(at_end);
  state_->is_static = is_static;
  state_->is_wanted.assign(parameters.size(), 1);
  state_->begin_step();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Accumulator accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
    auto hook = [state = state_.get(), i](const torch::autograd::variable_list& outputs,
                                          const torch::autograd::variable_list&) {
      state->arrived(i);
      return outputs;
    };
    std::uintptr_t key = accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
    state_->hooks.emplace_back(key, std::move(accumulator));
  }
}

GradientWatch::~GradientWatch() {
  for (auto& [key, accumulator] : state_->hooks) accumulator->del_post_hook(key);
}

void GradientWatch::expect(const std::vector<at::Tensor>& outputs) {
  {
    std::lock_guard lock(state_->mutex);
    state_->is_expecting = true;
    state_->has_others = false;
    state_->pass.reset();  // one that threw has not come to its end
    state_->begin_step();
  }
  for (const at::Tensor& output : outputs) {
    if (!output.grad_fn()) continue;
    state_->step.has_outputs = true;
    output.register_hook([state = state_](const at::Tensor&) { state->reached_output(); });
  }
}

void GradientWatch::ignore() {
  std::lock_guard lock(state_->mutex);
  // The Reducer takes the next gradients for those that it still waits for.
  if (state_->step.has_reduced) state_->is_expecting = false;
  state_->pass.reset();
}

void GradientWatch::arrived(std::size_t index) {
  state_->arrived(index);
}

bool GradientWatch::is_spoilt() const {
  std::lock_guard lock(state_->mutex);
  return state_->pass.has_value() || state_->has_others;
}

bool GradientWatch::has_failed() const {
  std::lock_guard lock(state_->mutex);
  return state_->pass && state_->pass->has_brought_any;
}

}  // namespace ddprun::ddp
