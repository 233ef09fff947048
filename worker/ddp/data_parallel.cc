// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/data_parallel.h"

#include <ATen/core/grad_mode.h>

#include "worker/ddp/data_parallel_impl.h"
#include "worker/ddp/gradients.h"
#include "worker/ddp/module_states.h"
#include "worker/ddp/peer_failures.h"

namespace ddprun::ddp {

DataParallelEngine::DataParallelEngine(std::shared_ptr<torch::nn::Module> module,
                                       ProcessGroup group, const DataParallelOptions& options) {
  if (options.comm_hook && options.compression != Compression::None) {
    throw DdpError("comm_hook and compression exclude each other: the hook decides what is sent");
  }
  group.barrier();  // names a rank that does not come, which a collective cannot
  verify_same_modules(group, *module, options);
  const ReducerConfig config = reducer_config(*module, options);
  init_module_states(group, *module, options.init_sync);
  impl_.reset(new Impl{.module = module,
                       .group = group,
                       .options = options,
                       .reducer = GradientReducer(group, module->name(), config, options)});
  if (!options.find_unused_parameters) impl_->left_out.emplace(group, config, options);
}

DataParallelEngine::~DataParallelEngine() = default;

bool DataParallelEngine::sync() const {
  return impl_->sync;
}
void DataParallelEngine::set_sync(bool on) {
  impl_->sync = on;
}

void DataParallelEngine::before_forward() {
  if (!at::GradMode::is_enabled()) return;
  impl_->group.peer_failures().check();
  if (impl_->sync) impl_->reducer.prepare_for_forward();
  const int root = impl_->joining ? impl_->announce_step() : 0;
  impl_->reducer.rebuild_buckets();
  impl_->mute.lift();
  if (impl_->sync && !impl_->joining) impl_->replica_check.before_forward();
  impl_->buffers.before_forward(root);
}

void DataParallelEngine::after_forward(const std::vector<at::Tensor*>& outputs) {
  if (!at::GradMode::is_enabled()) return;
  impl_->buffers.after_forward(impl_->sync);
  if (impl_->left_out) impl_->left_out->after_forward(impl_->sync);
  if (impl_->sync) impl_->reducer.prepare_for_backward(outputs);
}

double DataParallelEngine::clip_grad_norm(double max_norm, double norm_type) {
  if (!impl_->sync) {
    throw DdpError("clip_grad_norm inside no_sync would clip what is not reduced yet");
  }
  impl_->group.peer_failures().check();
  return ddp::clip_grad_norm(*impl_->module, max_norm, norm_type);
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
  broadcast_buffers(impl_->group, *impl_->module, 0);
}

at::Tensor DataParallelEngine::weighted(const at::Tensor& loss, double weight) {
  return weight != 0 ? loss * weight : impl_->mute.mute(loss);
}

}  // namespace ddprun::ddp
