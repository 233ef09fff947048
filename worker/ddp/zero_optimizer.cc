// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/zero_optimizer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "worker/ddp/error.h"
#include "worker/ddp/named_tensor.h"
#include "worker/ddp/optimizer_kinds.h"
#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/verification.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

Description describe(const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  Description lines;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const at::Tensor& parameter : groups[i].params()) {
      lines.push_back("parameter " + kind_of(parameter) + " of group " + std::to_string(i));
    }
  }
  return lines;
}

// The parameters by their number among those of all groups, which is the same on all ranks.
std::vector<NamedTensor> numbered(const torch::optim::Optimizer& optimizer) {
  std::vector<NamedTensor> parameters;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      parameters.push_back({std::to_string(parameters.size()), parameter});
    }
  }
  return parameters;
}

Json head_of(const std::vector<NamedTensor>& tensors) {
  Json head = Json::array();
  for (const NamedTensor& item : tensors) {
    head.push_back(
        {item.name, static_cast<int>(item.tensor.scalar_type()), item.tensor.sizes().vec()});
  }
  return head;
}

// Sends `tensors` to the rank `to`, which puts those of the others into `all`.
void gather(ProcessGroup& group, int to, const std::vector<NamedTensor>& tensors,
            std::map<std::string, at::Tensor>& all) {
  const std::vector<Json> heads = group.gather_object(head_of(tensors), to);
  if (group.rank() != to) {
    for (const NamedTensor& item : tensors) {
      group.send(item.tensor.detach().to(at::kCPU).contiguous(), to);
    }
    return;
  }
  for (const NamedTensor& item : tensors) all[item.name] = item.tensor;
  for (int from = 0; from < group.world_size(); ++from) {
    if (from == to) continue;
    for (const Json& entry : heads[static_cast<std::size_t>(from)]) {
      at::Tensor tensor = at::empty(entry[2].get<std::vector<std::int64_t>>(),
                                    static_cast<at::ScalarType>(entry[1].get<int>()));
      group.recv(tensor, from);
      all[entry[0].get<std::string>()] = tensor;
    }
  }
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(const Groups& groups,
                                   std::unique_ptr<torch::optim::OptimizerOptions> defaults,
                                   ProcessGroup group, const MakeLocal& make_local)
    : Optimizer(groups, std::move(defaults)),
      group_(std::move(group)),
      elements_by_rank_(static_cast<std::size_t>(group_.world_size()), 0),
      by_rank_(static_cast<std::size_t>(group_.world_size())) {
  verify_same(group_, "optimizers", describe(param_groups()));
  Groups own;
  for (const torch::optim::OptimizerParamGroup& all : param_groups()) own.push_back(own_part(all));
  local_ = make_local(own);
  const Result<OptimizerKind> kind = kind_of_optimizer(*local_);
  if (kind && *kind == OptimizerKind::Lbfgs) {
    throw DdpError(
        "ZeroRedundancyOptimizer: LBFGS steps all parameters as one, not each by itself");
  }
}

// Gives each rank its share of a group; returns this rank's.
torch::optim::OptimizerParamGroup ShardedOptimizer::own_part(
    const torch::optim::OptimizerParamGroup& group) {
  std::vector<at::Tensor> parameters = group.params();
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const auto& one, const auto& other) { return one.numel() > other.numel(); });
  std::vector<at::Tensor> own;
  for (const at::Tensor& parameter : parameters) {
    const auto least = std::min_element(elements_by_rank_.begin(), elements_by_rank_.end());
    const auto rank = static_cast<std::size_t>(least - elements_by_rank_.begin());
    *least += parameter.numel();
    by_rank_[rank].push_back(parameter);
    if (rank == static_cast<std::size_t>(group_.rank())) own.push_back(parameter);
  }
  return {std::move(own), group.options().clone()};
}

void ShardedOptimizer::add_param_group(const torch::optim::OptimizerParamGroup& group) {
  Optimizer::add_param_group(group);
  verify_same(group_, "optimizers", describe(param_groups()));
  local_->add_param_group(own_part(param_groups().back()));
}

bool ShardedOptimizer::is_own(const at::Tensor& parameter) const {
  const std::vector<at::Tensor>& own = by_rank_[static_cast<std::size_t>(group_.rank())];
  return std::any_of(own.begin(), own.end(),
                     [&](const at::Tensor& other) { return other.is_same(parameter); });
}

// A schedule, or the program, may have changed them.
void ShardedOptimizer::pass_settings_on() {
  for (std::size_t i = 0; i < param_groups().size(); ++i) {
    local_->param_groups()[i].set_options(param_groups()[i].options().clone());
  }
}

void ShardedOptimizer::take_over_parameters() {
  const at::NoGradGuard no_grad;
  for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : by_rank_[rank]) values.push_back(parameter.detach());
    if (!values.empty()) group_.broadcast(values, static_cast<int>(rank));
  }
}

at::Tensor ShardedOptimizer::step(LossClosure closure) {
  drop_consolidated_state();
  pass_settings_on();
  at::Tensor loss = local_->step(std::move(closure));
  take_over_parameters();
  return loss;
}

void ShardedOptimizer::consolidate_state(int to) {
  drop_consolidated_state();
  const std::vector<NamedTensor> parameters = numbered(*this);
  std::map<std::string, at::Tensor> all;
  gather(group_, to, value_or_throw(parameter_states(*local_, parameters)), all);
  if (group_.rank() != to) return;
  Result<void> done = restore_parameter_states(*this, parameters, all);
  if (!done) throw DdpError("consolidate the optimizer's state: " + to_string(done.error()));
  is_consolidated_ = true;
}

void ShardedOptimizer::drop_consolidated_state() {
  state().clear();
  is_consolidated_ = false;
}

void ShardedOptimizer::keep_own_state() {
  local_->state().clear();
  for (const at::Tensor& parameter : by_rank_[static_cast<std::size_t>(group_.rank())]) {
    const auto found = state().find(parameter.unsafeGetTensorImpl());
    if (found != state().end()) local_->state()[found->first] = std::move(found->second);
  }
  drop_consolidated_state();
}

void ShardedOptimizer::save(torch::serialize::OutputArchive& /*archive*/) const {
  throw DdpError("a ZeroRedundancyOptimizer is saved by the Checkpointer, not by torch::save");
}

void ShardedOptimizer::load(torch::serialize::InputArchive& /*archive*/) {
  throw DdpError("a ZeroRedundancyOptimizer is restored by the Checkpointer, not by torch::load");
}

}  // namespace ddprun::ddp
