// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/autograd.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "worker/ddp/collectives.h"
#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

// Statistics of channels: of the values of all ranks.
struct ChannelStatistics {
  at::Tensor mean;  // double, as the next
  at::Tensor variance;
  double count = 0;  // values per channel
};

// All dimensions but that of the channels.
std::vector<std::int64_t> reduced_dims(const at::Tensor& tensor) {
  std::vector<std::int64_t> dims{0};
  for (std::int64_t dim = 2; dim < tensor.dim(); ++dim) dims.push_back(dim);
  return dims;
}

// A value for each channel, in the shape in which it meets `like`.
at::Tensor per_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(like.dim()), 1);
  shape[1] = values.numel();
  return values.to(like.scalar_type()).view(shape);
}

// In the dtype in which sums over it are taken.
at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(at::toOpMathType(tensor.scalar_type()));
}

ChannelStatistics statistics_of_all(c10d::ProcessGroup& group, const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const auto options = input.options().dtype(at::kDouble);
  at::Tensor own = at::zeros({2 * channels + 1}, options);
  if (input.numel() > 0) {
    auto [variance, mean] = at::var_mean(widened(input), reduced_dims(input), /*correction=*/0);
    own.narrow(0, 0, channels).copy_(mean);
    own.narrow(0, channels, channels).copy_(variance);
    own[2 * channels].fill_(static_cast<double>(input.numel() / channels));
  }
  const at::Tensor all = at::stack(complete(start_all_gather(group, own, Caller::Waits)));
  const at::Tensor counts = all.narrow(1, 2 * channels, 1);
  const at::Tensor means = all.narrow(1, 0, channels);
  const at::Tensor variances = all.narrow(1, channels, channels);

  ChannelStatistics statistics;
  statistics.count = counts.sum().item<double>();
  const double divisor = std::max(statistics.count, 1.0);
  statistics.mean = (counts * means).sum(0) / divisor;
  statistics.variance =
      (counts * (variances + (means - statistics.mean).square())).sum(0) / divisor;
  return statistics;
}

// Brings the group to the backward pass.
struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup given) : group(std::move(given)) {}
  ProcessGroup group;
};

struct Normalise : torch::autograd::Function<Normalise> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const at::Tensor& mean,
                            const at::Tensor& inverse_deviation, double count,
                            const ProcessGroup& group) {
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["group"] =
        c10::IValue::make_capsule(c10::make_intrusive<GroupHolder>(group));
    const at::Tensor values = widened(input);
    at::Tensor output =
        (values - per_channel(mean, values)) * per_channel(inverse_deviation, values);
    if (weight) output = output * per_channel(*weight, values);
    if (bias) output = output + per_channel(*bias, values);
    return output.to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (at::GradMode::is_enabled()) throw DdpError("SyncBatchNorm has no second derivative");
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const at::Tensor values = widened(saved[0]);
    const at::Tensor gradient = gradients[0].to(values.scalar_type());
    const at::Tensor deviation = values - per_channel(saved[2], values);
    const at::Tensor inverse_deviation = per_channel(saved[3], values);
    const std::vector<std::int64_t> dims = reduced_dims(values);
    const at::Tensor sum = gradient.sum(dims);
    const at::Tensor sum_of_products = (gradient * deviation).sum(dims);

    torch::autograd::variable_list results(7);  // one for each argument of forward()
    if (context->needs_input_grad(0)) {
      const at::Tensor own = at::stack({sum.to(at::kDouble), sum_of_products.to(at::kDouble)});
      auto& holder = static_cast<GroupHolder&>(*context->saved_data["group"].toCapsule());
      complete(start_all_reduce(*holder.group.c10d(), own, ReduceOp::Sum, Caller::Waits));
      const at::Tensor means = own / std::max(context->saved_data["count"].toDouble(), 1.0);
      at::Tensor result = gradient - per_channel(means[0], values) -
                          deviation * inverse_deviation.square() * per_channel(means[1], values);
      result = result * inverse_deviation;
      if (weight.defined()) result = result * per_channel(weight, values);
      results[0] = result.to(saved[0].scalar_type());
    }
    if (weight.defined()) {
      results[1] = (sum_of_products * saved[3].to(sum.scalar_type())).to(weight.scalar_type());
      results[2] = sum.to(weight.scalar_type());
    }
    return results;
  }
};

template <class Module>
bool replace_by(torch::nn::SequentialImpl& parent, std::size_t place, const std::string& name,
                const torch::nn::Module& child, const ProcessGroup& group) {
  const auto* norm = child.as<Module>();
  if (norm == nullptr) return false;
  SyncBatchNorm replacement(norm->options, group);
  replacement->take_over(*norm);
  *(parent.begin() + static_cast<std::ptrdiff_t>(place)) = torch::nn::AnyModule(replacement);
  parent.replace_module(name, replacement);
  return true;
}

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
         module.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
         module.as<torch::nn::BatchNorm3dImpl>() != nullptr;
}

// The names of the BatchNorms whose type is fixed.
void find_fixed(const torch::nn::Module& module, const std::string& prefix,
                std::vector<std::string>& names) {
  const bool is_sequential = module.as<torch::nn::SequentialImpl>() != nullptr;
  for (const auto& child : module.named_children()) {
    const std::string name = prefix + child.key();
    if (!is_sequential && is_batch_norm(*child.value())) names.push_back(name);
    find_fixed(*child.value(), name + ".", names);
  }
}

void convert(torch::nn::Module& module, const ProcessGroup& group) {
  if (auto* norm = module.as<SyncBatchNormImpl>()) norm->set_group(group);
  auto* sequential = module.as<torch::nn::SequentialImpl>();
  std::size_t place = 0;
  for (const auto& child : module.named_children()) {
    const bool is_replaced =
        sequential != nullptr && (replace_by<torch::nn::BatchNorm1dImpl>(
                                      *sequential, place, child.key(), *child.value(), group) ||
                                  replace_by<torch::nn::BatchNorm2dImpl>(
                                      *sequential, place, child.key(), *child.value(), group) ||
                                  replace_by<torch::nn::BatchNorm3dImpl>(
                                      *sequential, place, child.key(), *child.value(), group));
    if (!is_replaced) convert(*child.value(), group);
    ++place;
  }
}

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(const torch::nn::BatchNormOptions& options_,
                                     std::optional<ProcessGroup> group)
    : NormImplBase(options_), group_(std::move(group)) {}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  if (input.dim() < 2) {
    throw DdpError("SyncBatchNorm takes inputs of 2 dimensions or more, and this one has " +
                   std::to_string(input.dim()));
  }
  if (input.size(1) != options.num_features()) {
    throw DdpError("SyncBatchNorm has " + std::to_string(options.num_features()) +
                   " channels, and the input has " + std::to_string(input.size(1)));
  }
}

// How much the batch at hand counts for the running statistics.
double SyncBatchNormImpl::next_momentum() {
  if (!is_training() || !options.track_running_stats()) return options.momentum().value_or(0);
  num_batches_tracked += 1;
  return options.momentum().value_or(1 / num_batches_tracked.item<double>());
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  const double momentum = next_momentum();
  if (!is_training() || !group_ || group_->world_size() == 1) {
    return torch::nn::functional::detail::batch_norm(
        input, running_mean, running_var, weight, bias,
        is_training() || !options.track_running_stats(), momentum, options.eps());
  }
  ChannelStatistics all;
  {
    at::NoGradGuard no_grad;
    all = statistics_of_all(*group_->c10d(), input);
    if (options.track_running_stats() && all.count > 0) {
      const at::Tensor unbiased = all.variance * (all.count / std::max(all.count - 1, 1.0));
      running_mean.mul_(1 - momentum).add_(all.mean.to(running_mean.scalar_type()), momentum);
      running_var.mul_(1 - momentum).add_(unbiased.to(running_var.scalar_type()), momentum);
    }
  }
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
  };
  return Normalise::apply(input, optional(weight), optional(bias), all.mean,
                          (all.variance + options.eps()).rsqrt(), all.count, *group_);
}

void SyncBatchNormImpl::take_tensors(const torch::Tensor& other_weight,
                                     const torch::Tensor& other_bias,
                                     const torch::Tensor& other_mean,
                                     const torch::Tensor& other_var,
                                     const torch::Tensor& other_count) {
  if (weight.defined()) {
    weight = parameters_["weight"] = other_weight;
    bias = parameters_["bias"] = other_bias;
  }
  if (!running_mean.defined()) return;
  running_mean.set_data(other_mean);
  running_var.set_data(other_var);
  num_batches_tracked.set_data(other_count);
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "ddprun::ddp::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine()
         << ", track_running_stats=" << options.track_running_stats()
         << ", ranks=" << (group_ ? group_->world_size() : 1) << ")";
}

void convert_sync_batchnorm(torch::nn::Module& module, const ProcessGroup& group) {
  std::vector<std::string> fixed;
  if (is_batch_norm(module)) fixed.push_back("the module itself");
  find_fixed(module, "", fixed);
  if (!fixed.empty()) {
    throw DdpError("convert_sync_batchnorm: " + fixed[0] +
                   " is a BatchNorm outside a torch::nn::Sequential, whose type is fixed: declare "
                   "it as ddprun::ddp::SyncBatchNorm");
  }
  convert(module, group);
}

}  // namespace ddprun::ddp
