// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradient_reducer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>

#include "worker/ddp/collectives.h"
#include "worker/ddp/left_out_report.h"
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

// Makes the gradients of `parameters` that autograd knows as views tensors of their own, in the
// same memory.  Buckets that are allocated during a backward pass are beyond WithoutViewTracking.
void forget_views(const std::vector<at::Tensor>& parameters) {
  WithoutViewTracking guard;
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.is_view() && !gradient.grad_fn())
      gradient = gradient.alias();
  }
}

// `count` in the form in which the Reducer asks for it.
c10::intrusive_ptr<c10d::Work> divisor(std::size_t count) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  std::vector<at::Tensor> result{at::tensor({static_cast<double>(count)}, at::kDouble)};
  future->markCompleted(c10::IValue(std::move(result)));
  return c10d::Work::create_from_future(future);
}

}  // namespace

GradientReducer::GradientReducer(const ProcessGroup& group, const std::string& module_name,
                                 const ReducerConfig& config, const DataParallelOptions& options)
    : group_(group),
      module_name_(module_name),
      config_(config),
      options_(options),
      watch_(config.parameters, options.static_graph,
             [this](const std::vector<std::size_t>& missing) { pass_ended(missing); }) {
  if (!options.find_unused_parameters)
    left_out_ = left_out_report(group, this, config.names, options.split_backward);
  make();
}

void GradientReducer::make() {
  has_passed_by_ = false;
  logger_.reset();
  reducer_.reset();  // ends its hooks on the parameters before new ones are made
  {
    WithoutViewTracking guard;
    reducer_ = make_reducer(config_, group_.c10d());
  }
  // The Reducer uses its logger without asking whether it has one.
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  logger_->set_construction_data_and_log(module_name_, /*device_ids=*/{}, /*output_device=*/-1,
                                         options_.broadcast_buffers, /*has_sync_bn=*/false,
                                         options_.static_graph);
  register_comm_hook();
  if (options_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::register_comm_hook() {
  if (options_.mixed_precision) {
    reducer_->set_mixed_precision_param_dtype(options_.mixed_precision->param_dtype);
    // That gives the buckets new memory, and leaves the gradients' places in the old.  (So the
    // first step of Python's mixed precision adds up whatever is in the new.)
    reducer_->initialize_buckets(config_.buckets);
  }
  if (options_.comm_hook) {
    reducer_->register_comm_hook(adapt(options_.comm_hook, group_));
    logger_->set_comm_hook("user's");
    return;
  }
  switch (options_.compression) {
    case Compression::None:
      return;
    case Compression::Float16:
      reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
      logger_->set_comm_hook("float16");
      return;
    case Compression::BFloat16:
      reducer_->register_comm_hook(adapt(bfloat16_hook(), group_));
      logger_->set_comm_hook("bfloat16");
      return;
  }
}

void GradientReducer::pass_by() {
  has_passed_by_ = true;
}

void GradientReducer::prepare_for_forward() {
  if (awaits_first_step() && (has_passed_by_ || watch_.is_spoilt())) make();
  logger_->set_runtime_stats_and_log();
  reducer_->prepare_for_forward();
}

// `action`, which begins a new reduction.  Where the one before was never finished, the Reducer
// takes it that parameters were left out.
template <class Action>
void GradientReducer::begin_anew(Action action) {
  try {
    action();
  } catch (const c10::Error& error) {
    if (!watch_.has_failed()) throw;
    throw DdpError(
        std::string("the last backward() of this rank has thrown in the middle of its reduction, "
                    "which the other ranks wait for: training cannot go on. Let such an error end "
                    "the process. (") +
        error.what_without_backtrace() + ")");
  }
}

void GradientReducer::rebuild_buckets() {
  WithoutViewTracking guard;
  begin_anew([this] { reducer_->rebuild_buckets(); });
}

void GradientReducer::prepare_for_backward(std::vector<at::Tensor>& outputs) {
  std::vector<at::Tensor*> differentiable;
  torch::autograd::variable_list values;
  for (at::Tensor& output : outputs) {
    if (!output.grad_fn()) continue;
    differentiable.push_back(&output);
    values.push_back(output);
  }
  begin_anew([&] {
    reducer_->prepare_for_backward(config_.searches_unused ? values
                                                           : torch::autograd::variable_list{});
  });
  if (config_.searches_unused && !values.empty()) {
    values = PassThrough::apply(at::TensorList(values));
    for (std::size_t i = 0; i < differentiable.size(); ++i) *differentiable[i] = values[i];
  }
  watch_.expect(values);
}

void GradientReducer::ignore_backward() {
  watch_.ignore();
}

// In the first step of a static graph the Reducer only counts how often each parameter is used, and
// reduces when it is told that the backward pass is over.
void GradientReducer::pass_ended(const std::vector<std::size_t>& missing) {
  if (awaits_first_step()) reducer_->delay_all_reduce();
  has_reduced_ = true;
  if (options_.lazy_bucket_allocation && options_.gradient_as_bucket_view) {
    // After the Reducer's own work at the end of the pass, which is queued by now.
    torch::autograd::Engine::get_default_engine().queue_callback(
        [parameters = config_.parameters] { forget_views(parameters); });
  }
  if (left_out_) left_out_(missing);
}

std::vector<std::int64_t> GradientReducer::bucket_sizes() const {
  return logger_->get_bucket_sizes();
}

BucketLayout GradientReducer::bucket_layout() {
  if (options_.lazy_bucket_allocation) {
    throw DdpError(
        "bucket_layout() and lazy_bucket_allocation exclude each other: its buckets are not "
        "there between two steps");
  }
  rebuild_buckets();
  std::unordered_map<c10::TensorImpl*, std::size_t> indices;
  for (const at::Tensor& parameter : config_.parameters) {
    indices.emplace(parameter.unsafeGetTensorImpl(), indices.size());
  }
  BucketLayout layout;
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
    layout.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      layout.back().push_back(indices.at(parameter.unsafeGetTensorImpl()));
    }
  }
  return layout;
}

void GradientReducer::set_active_ranks(std::size_t active_ranks, bool divide_by_world_size) {
  reducer_->set_forward_pass_work_handle(divisor(active_ranks), divide_by_world_size);
}

void GradientReducer::reset_active_ranks() {
  reducer_->set_forward_pass_work_handle({}, true);
}

bool GradientReducer::awaits_first_step() const {
  return options_.static_graph && !has_reduced_;
}

void GradientReducer::gradient_is_there(std::size_t index) {
  reducer_->autograd_hook(index);
  watch_.arrived(index);
}

void GradientReducer::reduce_zeros() {
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> reductions;
  for (c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/true)) {
    reductions.push_back(reducer_->run_comm_hook(bucket));
  }
  for (auto& reduction : reductions) reduction->waitAndThrow();
  if (config_.searches_unused) {
    // Nothing of this rank's was used.  (Python's join() sends what the last reduction left in the
    // map, so that a parameter which no forward uses any more gets gradients of zero.)
    // Over the bare group, as the others' Reducers do it: check_collectives sees neither.
    complete(start_all_reduce(*group_.c10d(),
                              at::zeros_like(reducer_->get_local_used_map_on_device()),
                              ReduceOp::Sum, Caller::Waits));
  }
  reducer_->push_rebuilt_params_for_all_indices();
}

}  // namespace ddprun::ddp
