// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/data_parallel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/autograd.h>

#include <unordered_map>

#include "worker/ddp/data_parallel_impl.h"
#include "worker/ddp/gradients.h"
#include "worker/ddp/module_states.h"
#include "worker/ddp/named_tensor.h"
#include "worker/ddp/peer_failures.h"
#include "worker/ddp/reducer_compat.h"

namespace ddprun::ddp {
namespace {

// Hands its inputs through.  Where an output is not part of the loss, its backward still runs and
// passes an undefined gradient on, so that the Reducer hears of the parameters behind that output.
struct PassThrough : torch::autograd::Function<PassThrough> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                at::TensorList inputs) {
    context->set_materialize_grads(false);
    torch::autograd::variable_list outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(input.clone());
    return outputs;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

// While one lives, views are made that autograd takes for tensors of their own.  The Reducer hands
// views of its buckets out as gradients, and LibTorch's optimizers call detach_() on gradients,
// which refuses a view that autograd knows.
using WithoutViewTracking = at::AutoDispatchBelowADInplaceOrView;

}  // namespace

void register_hooks(c10d::Reducer& reducer, c10d::Logger& logger, const ProcessGroup& group,
                    const DataParallelOptions& options) {
  if (options.comm_hook) {
    reducer.register_comm_hook(adapt(options.comm_hook, group));
    logger.set_comm_hook("user's");
    return;
  }
  switch (options.compression) {
    case Compression::None:
      return;
    case Compression::Float16:
      reducer.register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
      logger.set_comm_hook("float16");
      return;
    case Compression::BFloat16:
      reducer.register_comm_hook(adapt(bfloat16_hook(), group));
      logger.set_comm_hook("bfloat16");
      return;
  }
}

void DataParallelEngine::Impl::rebuild_buckets() {
  WithoutViewTracking guard;
  reducer->rebuild_buckets();
}

DataParallelEngine::DataParallelEngine(std::shared_ptr<torch::nn::Module> module,
                                       ProcessGroup group, const DataParallelOptions& options)
    : impl_(new Impl{.module = std::move(module), .group = std::move(group), .options = options}) {
  if (options.comm_hook && options.compression != Compression::None) {
    throw DdpError("comm_hook and compression exclude each other: the hook decides what is sent");
  }
  impl_->group.barrier();  // names a rank that does not come, which a collective cannot
  verify_same_modules(impl_->group, *impl_->module, options);
  ReducerConfig config = reducer_config(*impl_->module, options);
  init_module_states(impl_->group, *impl_->module, options.init_sync);
  {
    WithoutViewTracking guard;
    impl_->reducer = make_reducer(config, impl_->group.c10d());
  }
  // The Reducer uses its logger without asking whether it has one.
  impl_->logger = std::make_shared<c10d::Logger>(impl_->reducer);
  impl_->reducer->set_logger(impl_->logger);
  impl_->logger->set_construction_data_and_log(impl_->module->name(), /*device_ids=*/{},
                                               /*output_device=*/-1, options.broadcast_buffers,
                                               /*has_sync_bn=*/false, options.static_graph);
  register_hooks(*impl_->reducer, *impl_->logger, impl_->group, options);
  if (options.static_graph) {
    impl_->reducer->set_static_graph();
    impl_->logger->set_static_graph();
  }
  if (!options.find_unused_parameters) impl_->left_out.emplace(impl_->group, config, options);
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
  if (impl_->sync) {
    impl_->logger->set_runtime_stats_and_log();
    impl_->reducer->prepare_for_forward();
  }
  const int root = impl_->joining ? impl_->announce_step() : 0;
  impl_->rebuild_buckets();
  impl_->mute.lift();
  if (impl_->sync && !impl_->joining) impl_->replica_check.before_forward();
  impl_->buffers.before_forward(root);
}

void DataParallelEngine::after_forward(const std::vector<at::Tensor*>& outputs) {
  if (!at::GradMode::is_enabled()) return;
  impl_->buffers.after_forward(impl_->sync);
  if (impl_->left_out) impl_->left_out->after_forward(impl_->sync);
  if (!impl_->sync) return;
  const bool searches = impl_->options.find_unused_parameters && !impl_->options.static_graph;
  std::vector<at::Tensor*> differentiable;
  torch::autograd::variable_list values;
  for (at::Tensor* output : outputs) {
    if (!output->grad_fn()) continue;
    differentiable.push_back(output);
    values.push_back(*output);
  }
  if (impl_->options.static_graph && !*impl_->is_graph_known) reduce_after_backward(values);
  impl_->reducer->prepare_for_backward(searches ? values : torch::autograd::variable_list{});
  if (!searches || values.empty()) return;
  torch::autograd::variable_list passed = PassThrough::apply(at::TensorList(values));
  for (std::size_t i = 0; i < differentiable.size(); ++i) *differentiable[i] = passed[i];
}

// In the first step of a static graph the Reducer only counts; it must be told when the backward
// pass is over, which the first of the outputs' gradients to come gives the occasion for.
void DataParallelEngine::reduce_after_backward(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) {
    output.register_hook([is_graph_known = impl_->is_graph_known,
                          weak = std::weak_ptr(impl_->reducer)](const at::Tensor&) {
      if (*is_graph_known) return;
      *is_graph_known = true;
      torch::autograd::Engine::get_default_engine().queue_callback([weak] {
        if (auto reducer = weak.lock()) reducer->delay_all_reduce();
      });
    });
  }
}

std::vector<std::int64_t> DataParallelEngine::bucket_sizes() const {
  return impl_->logger->get_bucket_sizes();
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

void DataParallelEngine::sync_buffers() {
  broadcast_buffers(impl_->group, *impl_->module, 0);
}

at::Tensor DataParallelEngine::weighted(const at::Tensor& loss, double weight) {
  return weight != 0 ? loss * weight : impl_->mute.mute(loss);
}

BucketLayout DataParallelEngine::bucket_layout() {
  if (impl_->options.lazy_bucket_allocation) {
    throw DdpError(
        "bucket_layout() and lazy_bucket_allocation exclude each other: its buckets are not "
        "there between two steps");
  }
  impl_->rebuild_buckets();
  std::unordered_map<c10::TensorImpl*, std::size_t> indices;
  for (const NamedTensor& item : named_parameters(*impl_->module, false)) {
    if (!item.tensor.requires_grad()) continue;
    indices.emplace(item.tensor.unsafeGetTensorImpl(), indices.size());
  }
  BucketLayout layout;
  for (const c10d::GradBucket& bucket :
       impl_->reducer->get_grad_buckets(/*return_zero_tensors=*/false)) {
    layout.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      layout.back().push_back(indices.at(parameter.unsafeGetTensorImpl()));
    }
  }
  return layout;
}

}  // namespace ddprun::ddp
