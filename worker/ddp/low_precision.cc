// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/low_precision.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <vector>

#include "worker/ddp/error.h"
#include "worker/ddp/own_values.h"

namespace ddprun::ddp {
namespace {

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

void cast_gradient(const at::Tensor& parameter, at::ScalarType dtype) {
  at::Tensor& gradient = parameter.mutable_grad();
  if (gradient.defined() && gradient.scalar_type() != dtype) gradient.set_data(gradient.to(dtype));
}

// The parameters of this process that are low: where their own values are, and how to get them
// back.
class LoweredParameters {
 public:
  struct Entry {
    at::Tensor own;
    std::function<void()> raise;
  };

  void add(const at::Tensor& parameter, Entry entry) {
    std::lock_guard lock(mutex_);
    entries_.insert_or_assign(parameter.unsafeGetTensorImpl(), std::move(entry));
  }
  void remove(const at::Tensor& parameter) {
    std::lock_guard lock(mutex_);
    entries_.erase(parameter.unsafeGetTensorImpl());
  }
  bool contains(const at::Tensor& parameter) const {
    std::lock_guard lock(mutex_);
    return entries_.contains(parameter.unsafeGetTensorImpl());
  }
  std::optional<Entry> find(const at::Tensor& parameter) const {
    std::lock_guard lock(mutex_);
    auto found = entries_.find(parameter.unsafeGetTensorImpl());
    if (found == entries_.end()) return std::nullopt;
    return found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<c10::TensorImpl*, Entry> entries_;
};

LoweredParameters& lowered_parameters() {
  // Never destroyed: a wrapper of static lifetime may end after everything else.
  static auto* const lowered = new LoweredParameters;  // NOLINT(cppcoreguidelines-owning-memory)
  return *lowered;
}

}  // namespace

at::Tensor own_values_of(const at::Tensor& parameter) {
  auto lowered = lowered_parameters().find(parameter);
  return lowered ? lowered->own : parameter;
}

void give_back_own_values(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (auto lowered = lowered_parameters().find(parameter)) lowered->raise();
  }
}

struct LowPrecision::State : std::enable_shared_from_this<State> {
  struct Parameter {
    at::Tensor tensor;
    at::Tensor own;                    // the values of full precision, in their own memory
    std::optional<std::size_t> index;  // among those that are reduced
    std::int64_t version = 0;          // of the values of low precision, after the forward
  };

  MixedPrecision options;
  SyncedModule module;
  std::vector<Parameter> parameters;
  std::unordered_map<c10::TensorImpl*, at::ScalarType> own_dtypes;
  OnGradient on_gradient;
  bool is_low = false;
  bool has_lost_change = false;
  std::vector<std::pair<std::uintptr_t, Accumulator>> hooks;

  State(MixedPrecision wanted, SyncedModule wrapped)
      : options(wanted), module(std::move(wrapped)) {}

  at::ScalarType reduce_dtype() const { return options.reduce_dtype.value_or(options.param_dtype); }

  void add_hook(const at::Tensor& tensor, std::size_t index) {
    Accumulator accumulator = torch::autograd::impl::grad_accumulator(tensor);
    auto hook = [weak = weak_from_this(), index](const torch::autograd::variable_list& outputs,
                                                 const torch::autograd::variable_list&) {
      if (auto state = weak.lock()) state->on_gradient(index);
      return outputs;
    };
    std::uintptr_t key = accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
    hooks.emplace_back(key, std::move(accumulator));
  }

  bool lower() {
    const bool is_lost = std::exchange(has_lost_change, false) || (is_low && is_changed());
    if (is_lost) {
      throw DdpError(
          "mixed_precision: parameters were changed before a backward() that reduces has followed "
          "forward(), and the change is lost: step the optimizer after such a backward(), and call "
          "a forward() that has no backward() under torch::NoGradGuard");
    }
    if (is_low) return false;
    for (const Parameter& item : parameters) {
      if (lowered_parameters().contains(item.tensor)) {
        throw DdpError(
            "mixed_precision: two DistributedDataParallel share a parameter, which has values of "
            "low precision already");
      }
    }
    const at::NoGradGuard no_grad;
    is_low = true;
    for (Parameter& item : parameters) {
      item.own = item.tensor.detach();
      cast_gradient(item.tensor, options.param_dtype);
      item.tensor.set_data(item.own.to(options.param_dtype, /*non_blocking=*/false, /*copy=*/true));
      if (item.index) add_hook(item.tensor, *item.index);
      lowered_parameters().add(item.tensor, {.own = item.own, .raise = [this] { raise(); }});
    }
    return true;
  }

  // After a forward, which may itself change parameters: an Embedding's max_norm.
  void note_versions() {
    for (Parameter& item : parameters) item.version = item.tensor._version();
  }

  // An optimizer's step, for one, would be lost.
  bool is_changed() const {
    return std::ranges::any_of(
        parameters, [](const Parameter& item) { return item.tensor._version() != item.version; });
  }

  void raise() {
    if (!is_low) return;
    const at::NoGradGuard no_grad;
    is_low = false;
    for (auto& [key, accumulator] : hooks) accumulator->del_post_hook(key);
    hooks.clear();
    for (Parameter& item : parameters) {
      lowered_parameters().remove(item.tensor);
      item.tensor.set_data(item.own);
      cast_gradient(item.tensor, item.own.scalar_type());
      item.own.reset();
    }
  }

  // After the last bucket, once autograd is through with the values of low precision.
  void raise_later() {
    if (torch::autograd::get_current_graph_task_id() == -1) return;  // a rank that has joined
    torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this()] {
      auto state = weak.lock();
      if (!state || !state->is_low) return;
      // Not thrown here: the Reducer would not come to its end.
      state->has_lost_change = state->is_changed();
      state->raise();
    });
  }

  c10::intrusive_ptr<c10::ivalue::Future> reduce(ProcessGroup& group, c10d::GradBucket& bucket) {
    // The Reducer copies the result into the gradients: it must not be rounded there.
    for (const at::Tensor& parameter : bucket.getParameters()) {
      cast_gradient(parameter, own_dtypes.at(parameter.unsafeGetTensorImpl()));
    }
    if (bucket.isLast()) raise_later();
    at::Tensor sum = bucket.getBuffer().to(reduce_dtype());
    std::vector<at::Tensor> sent{sum};
    const int count = group.world_size();
    return group.c10d()->allreduce(sent)->getFuture()->then(
        [sum, count](c10::ivalue::Future& future) {
          future.value();  // throws what went wrong
          const at::NoGradGuard no_grad;
          return c10::IValue(at::Tensor(sum).div_(count));
        },
        c10::TensorType::get());
  }
};

void check_mixed_precision(const DataParallelOptions& options) {
  if (!options.mixed_precision) return;
  auto exclude = [](bool is_set, const std::string& name) {
    if (is_set) throw DdpError("mixed_precision and " + name + " exclude each other");
  };
  exclude(options.comm_hook != nullptr, "comm_hook");
  exclude(options.compression != Compression::None, "compression");
  exclude(options.find_unused_parameters, "find_unused_parameters");
  exclude(options.static_graph, "static_graph");
  exclude(options.gradient_as_bucket_view, "gradient_as_bucket_view");
  exclude(options.batched_grad_copy, "batched_grad_copy");
  exclude(options.lazy_bucket_allocation, "lazy_bucket_allocation");
  const MixedPrecision& wanted = *options.mixed_precision;
  for (auto dtype : {std::optional(wanted.param_dtype), wanted.reduce_dtype, wanted.buffer_dtype}) {
    if (!dtype || at::isFloatingType(*dtype)) continue;
    throw DdpError(std::string("mixed_precision: ") + c10::toString(*dtype) +
                   " is no floating-point type");
  }
}

LowPrecision::LowPrecision(const SyncedModule& module, const ReducerConfig& config,
                           const MixedPrecision& options)
    : state_(std::make_shared<State>(options, module)) {
  std::unordered_map<c10::TensorImpl*, std::size_t> indices;
  for (const at::Tensor& parameter : config.parameters) {
    indices.emplace(parameter.unsafeGetTensorImpl(), indices.size());
  }
  for (const NamedTensor& item : module.parameters()) {
    const auto found = indices.find(item.tensor.unsafeGetTensorImpl());
    std::optional<std::size_t> index;
    if (found != indices.end()) index = found->second;
    if (item.tensor.is_floating_point()) {
      state_->own_dtypes[item.tensor.unsafeGetTensorImpl()] = item.tensor.scalar_type();
      // It keeps its gradient accumulator, and with it the hooks of the Reducer.
      if (item.tensor.scalar_type() == options.param_dtype) continue;
      state_->parameters.push_back({.tensor = item.tensor, .own = {}, .index = index});
    } else if (index) {
      throw DdpError("mixed_precision: the parameter " + item.name + " is " +
                     c10::toString(item.tensor.scalar_type()) +
                     ", which is no floating-point type");
    }
  }
}

LowPrecision::~LowPrecision() {
  state_->raise();
}

void LowPrecision::set_on_gradient(OnGradient on_gradient) {
  state_->on_gradient = std::move(on_gradient);
}

void LowPrecision::cast_buffers() {
  if (!state_->options.buffer_dtype) return;
  const at::NoGradGuard no_grad;
  for (NamedTensor& item : state_->module.buffers()) {
    if (!item.tensor.is_floating_point()) continue;
    item.tensor.set_data(item.tensor.to(*state_->options.buffer_dtype));
  }
}

bool LowPrecision::lower() {
  return state_->lower();
}
void LowPrecision::raise() {
  state_->raise();
}
void LowPrecision::after_forward() {
  inputs_.clear();
  if (state_->is_low) state_->note_versions();
}

CommHook LowPrecision::hook() const {
  return [state = state_](ProcessGroup& group, c10d::GradBucket& bucket) {
    return state->reduce(group, bucket);
  };
}

at::Tensor& LowPrecision::input(const at::Tensor& tensor) {
  const bool casts = tensor.defined() && tensor.is_floating_point();
  return inputs_.emplace_back(casts ? tensor.to(state_->options.param_dtype) : tensor);
}

}  // namespace ddprun::ddp
