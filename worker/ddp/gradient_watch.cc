// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradient_watch.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

namespace ddprun::ddp {
namespace {

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

}  // namespace

struct GradientWatch::State : std::enable_shared_from_this<State> {
  AtEnd at_end;
  bool is_static = false;
  std::vector<std::pair<std::uintptr_t, Accumulator>> hooks;

  std::mutex mutex;  // gradients on several devices come on several threads
  bool is_expecting = false;
  bool is_end_queued = false;
  bool has_learned = false;
  std::vector<char> is_wanted;
  std::vector<char> is_here;

  void arrived(std::size_t index) {
    std::lock_guard lock(mutex);
    if (!is_expecting) return;
    is_here[index] = 1;
    if (is_end_queued) return;
    is_end_queued = true;
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      if (auto state = weak.lock()) state->ended();
    });
  }

  void ended() {
    std::vector<std::size_t> missing;
    {
      std::lock_guard lock(mutex);
      is_end_queued = false;
      if (is_static && !has_learned) is_wanted = is_here;
      has_learned = true;
      for (std::size_t i = 0; i < is_here.size(); ++i) {
        if (is_wanted[i] && !is_here[i]) missing.push_back(i);
      }
    }
    at_end(missing);
  }
};

GradientWatch::GradientWatch(const std::vector<at::Tensor>& parameters, bool is_static,
                             AtEnd at_end)
    : state_(std::make_shared<State>()) {
  state_->at_end = std::move(at_end);
  state_->is_static = is_static;
  state_->is_wanted.assign(parameters.size(), 1);
  state_->is_here.assign(parameters.size(), 0);
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

void GradientWatch::expect() {
  std::lock_guard lock(state_->mutex);
  state_->is_expecting = true;
  state_->is_end_queued = false;  // a pass that threw has not come to its end
  state_->is_here.assign(state_->is_here.size(), 0);
}

void GradientWatch::arrived(std::size_t index) {
  state_->arrived(index);
}

void GradientWatch::ignore() {
  std::lock_guard lock(state_->mutex);
  state_->is_expecting = false;
}

}  // namespace ddprun::ddp
