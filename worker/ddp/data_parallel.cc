// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/data_parallel.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <deque>

#include "worker/ddp/buffer_sync.h"
#include "worker/ddp/gradient_mute.h"
#include "worker/ddp/gradient_reducer.h"
#include "worker/ddp/gradients.h"
#include "worker/ddp/join.h"
#include "worker/ddp/low_precision.h"
#include "worker/ddp/module_states.h"
#include "worker/ddp/parameter_check.h"
#include "worker/ddp/peer_failures.h"
#include "worker/ddp/reducer_config.h"
#include "worker/ddp/replica_check.h"

namespace ddprun::ddp {

struct DataParallelEngine::Impl {
  std::shared_ptr<torch::nn::Module> module;
  SyncedModule synced;
  ProcessGroup group;
  DataParallelOptions options;
  std::unique_ptr<LowPrecision> low;  // with mixed_precision
  std::unique_ptr<ParameterCheck> parameters;
  GradientReducer reducer;
  BufferSync buffers{group, synced, options.broadcast_buffers};
  ReplicaCheck replica_check{group, synced, options.check_replicas_every};
  std::vector<at::Tensor> sparse;  // parameters whose gradients are
  std::optional<Join> join;
  bool sync = true;
  bool is_lowered_here = false;   // by the forward at hand
  std::deque<at::Tensor> inputs;  // of the forward at hand, on the module's device
};

DataParallelEngine::DataParallelEngine(std::shared_ptr<torch::nn::Module> module,
                                       ProcessGroup group, const DataParallelOptions& options) {
  if (options.comm_hook && options.compression != Compression::None) {
    throw DdpError("comm_hook and compression exclude each other: the hook decides what is sent");
  }
  check_mixed_precision(options);
  const SyncedModule synced(module, options.ignored);
  group.barrier();  // names a rank that does not come, which a collective cannot
  verify_same_modules(group, synced, options);
  verify_device(group, synced, options.device_ids);
  const ReducerConfig config = reducer_config(synced, options);
  init_module_states(group, synced, options.init_sync);
  std::unique_ptr<LowPrecision> low;
  DataParallelOptions reduced = options;
  if (options.mixed_precision) {
    low = std::make_unique<LowPrecision>(synced, config, *options.mixed_precision);
    low->cast_buffers();
    reduced.comm_hook = low->hook();
  }
  auto parameters =
      std::make_unique<ParameterCheck>(synced, config, options.mixed_precision.has_value());
  impl_.reset(new Impl{.module = module,
                       .synced = synced,
                       .group = group,
                       .options = options,
                       .low = std::move(low),
                       .parameters = std::move(parameters),
                       .reducer = GradientReducer(group, module->name(), config, reduced)});
  for (std::size_t i = 0; i < config.parameters.size(); ++i) {
    if (config.expect_sparse[i]) impl_->sparse.push_back(config.parameters[i]);
  }
  if (!impl_->low) return;
  impl_->low->set_on_gradient(
      [impl = impl_.get()](std::size_t index) { impl->reducer.gradient_is_there(index); });
}

DataParallelEngine::~DataParallelEngine() = default;

bool DataParallelEngine::sync() const {
  return impl_->sync;
}
void DataParallelEngine::set_sync(bool on) {
  impl_->sync = on;
}

void DataParallelEngine::before_forward() {
  if (at::GradMode::is_enabled()) meet_before_forward();
  if (impl_->low) impl_->is_lowered_here = impl_->low->lower();
}

// What the ranks do together before a forward with gradients.
void DataParallelEngine::meet_before_forward() {
  impl_->parameters->run();
  impl_->group.peer_failures().check();
  if (impl_->sync && !impl_->join) {
    impl_->group.compare_call("the forward of a DistributedDataParallel");
  }
  if (impl_->sync) {
    impl_->reducer.prepare_for_forward();
  } else {
    impl_->reducer.pass_by();
  }
  const int root = impl_->join ? impl_->join->announce_step(impl_->sync) : 0;
  impl_->reducer.rebuild_buckets();
  if (impl_->sync && !impl_->join) impl_->replica_check.before_forward();
  impl_->buffers.before_forward(root);
}

at::Tensor* DataParallelEngine::input(const at::Tensor& tensor) {
  at::Tensor* moved = nullptr;
  if (!impl_->options.device_ids.empty()) {
    const at::Device device = impl_->options.device_ids[0];
    moved = &impl_->inputs.emplace_back(tensor.defined() ? tensor.to(device) : tensor);
  }
  return impl_->low ? &impl_->low->input(moved ? *moved : tensor) : moved;
}

void DataParallelEngine::after_forward(std::vector<at::Tensor>& outputs) {
  impl_->inputs.clear();
  if (impl_->low) impl_->low->after_forward();
  if (!at::GradMode::is_enabled()) {
    if (impl_->is_lowered_here) impl_->low->raise();
    return;
  }
  impl_->buffers.after_forward(impl_->sync);
  if (impl_->sync) {
    impl_->reducer.prepare_for_backward(outputs);
  } else {
    impl_->reducer.ignore_backward();
  }
}

void DataParallelEngine::abandon_forward() {
  impl_->inputs.clear();
  if (!impl_->low) return;
  impl_->low->after_forward();
  if (impl_->is_lowered_here) impl_->low->raise();
}

void DataParallelEngine::enter_join(const JoinOptions& options) {
  if (impl_->join) throw DdpError("join() is called within another one of the same module");
  check_join(impl_->options, options);
  impl_->join.emplace(impl_->group, impl_->synced, impl_->reducer, impl_->buffers, options);
}

void DataParallelEngine::finish_join() {
  if (impl_->low) impl_->low->raise();
  impl_->join->finish();
}

void DataParallelEngine::leave_join() {
  impl_->join.reset();
}

void DataParallelEngine::check_move(std::optional<at::Device> device,
                                    std::optional<at::ScalarType> dtype) const {
  check_that_nothing_moves(*impl_->module, device, dtype);
}

double DataParallelEngine::clip_grad_norm(double max_norm, double norm_type) {
  if (!impl_->sync) {
    throw DdpError("clip_grad_norm inside no_sync would clip what is not reduced yet");
  }
  impl_->group.peer_failures().check();
  return ddp::clip_grad_norm(impl_->synced.parameters(), max_norm, norm_type);
}

void DataParallelEngine::zero_grad(bool set_to_none) {
  ddp::zero_grad(*impl_->module, set_to_none);
}

std::vector<std::int64_t> DataParallelEngine::bucket_sizes() const {
  return impl_->reducer.bucket_sizes();
}

BucketLayout DataParallelEngine::bucket_layout() {
  return impl_->reducer.bucket_layout();
}

void DataParallelEngine::sync_buffers() {
  broadcast_buffers(impl_->group, impl_->synced, 0);
}

at::Tensor DataParallelEngine::weighted(const at::Tensor& loss, double weight) {
  if (!std::isfinite(weight)) {
    throw DdpError("the weight of a loss is " + std::to_string(weight) + ", which is no number");
  }
  return weight != 0 ? loss * weight : muted(loss, impl_->sparse);
}

}  // namespace ddprun::ddp
