// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/post_local_sgd.h"

#include <ATen/ATen.h>

#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

// Tensors that can lie in one, by device and dtype.
using Kinds = std::map<std::pair<std::string, at::ScalarType>, std::vector<at::Tensor>>;

Kinds kinds_of(const std::vector<at::Tensor>& parameters) {
  Kinds kinds;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    kinds[{parameter.device().str(), parameter.scalar_type()}].push_back(parameter);
  }
  return kinds;
}

void average(ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : parameters) parts.push_back(parameter.reshape(-1));
  at::Tensor flat = at::cat(parts).div_(group.world_size());
  group.all_reduce(flat);
  std::int64_t begin = 0;
  for (const at::Tensor& parameter : parameters) {
    parameter.copy_(flat.narrow(0, begin, parameter.numel()).view(parameter.sizes()));
    begin += parameter.numel();
  }
}

c10::intrusive_ptr<c10::ivalue::Future> done(const at::Tensor& buffer) {
  std::vector<c10::Device> devices;
  if (!buffer.device().is_cpu()) devices.push_back(buffer.device());
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), std::move(devices));
  future->markCompleted(c10::IValue(buffer));
  return future;
}

StateDict count_as_state(const std::string& name, std::int64_t count) {
  return {.common = {{name, at::scalar_tensor(count, at::kLong)}}, .own = {}};
}

std::int64_t count_in(const StateDict& state, const std::string& name) {
  const auto found = state.common.find(name);
  if (found == state.common.end() || found->second.numel() != 1) {
    throw DdpError("post-local SGD: what was saved has no '" + name + "'");
  }
  return found->second.item<std::int64_t>();
}

}  // namespace

PostLocalSgdState::PostLocalSgdState(const PostLocalSgdOptions& options)
    : options_(options), iteration_(std::make_shared<std::int64_t>(0)) {
  if (options.start_iteration < 0) {
    throw DdpError("post_local_sgd_hook: start_iteration " +
                   std::to_string(options.start_iteration) + " is not 0 or more");
  }
  if (options.post_local_gradient_allreduce && !options.subgroup) {
    throw DdpError(
        "post_local_sgd_hook needs the subgroup of this rank, or post_local_gradient_allreduce = "
        "false");
  }
}

CommHook PostLocalSgdState::hook() const {
  return [options = options_, subgroup = options_.subgroup, iteration = iteration_](
             ProcessGroup& group, c10d::GradBucket& bucket) mutable {
    if (*iteration < options.start_iteration) {
      if (bucket.isLast()) ++*iteration;
      return mean_of(group, bucket.getBuffer());
    }
    if (options.post_local_gradient_allreduce) {
      return mean_of(*subgroup, bucket.getBuffer());
    }
    return done(bucket.getBuffer());
  };
}

StateDict PostLocalSgdState::state_dict() const {
  return count_as_state("iteration", *iteration_);
}

void PostLocalSgdState::load_state_dict(const StateDict& state) {
  *iteration_ = count_in(state, "iteration");
}

CommHook post_local_sgd_hook(const PostLocalSgdOptions& options) {
  return PostLocalSgdState(options).hook();
}

PeriodicModelAverager::PeriodicModelAverager(ProcessGroup group, std::int64_t period,
                                             std::int64_t warmup_steps)
    : group_(std::move(group)), period_(period), warmup_steps_(warmup_steps) {
  auto refuse = [](const std::string& what, std::int64_t value, const std::string& wanted) {
    throw DdpError("PeriodicModelAverager: " + what + " " + std::to_string(value) + " is not " +
                   wanted);
  };
  if (period < 1) refuse("period", period, "1 or more");
  if (warmup_steps < 0) refuse("warmup_steps", warmup_steps, "0 or more");
}

void PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  const std::int64_t step = step_++;
  if (step < warmup_steps_ || (step - warmup_steps_) % period_ != 0) return;
  const at::NoGradGuard no_grad;
  for (const auto& [kind, some] : kinds_of(parameters)) average(group_, some);
}

StateDict PeriodicModelAverager::state_dict() const {
  return count_as_state("step", step_);
}

void PeriodicModelAverager::load_state_dict(const StateDict& state) {
  step_ = count_in(state, "step");
}

at::Tensor PostLocalSgdOptimizer::step(torch::optim::Optimizer::LossClosure closure) {
  at::Tensor loss = local_.step(std::move(closure));
  std::vector<at::Tensor> parameters;
  for (const auto& group : local_.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  averager_.average_parameters(parameters);
  return loss;
}

}  // namespace ddprun::ddp
