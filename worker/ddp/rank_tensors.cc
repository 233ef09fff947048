// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/rank_tensors.h"

#include <ATen/ATen.h>
#include <torch/optim/lbfgs.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "store/base/number.h"
#include "worker/checkpoint/formats/crc32c.h"
#include "worker/ddp/ignored_names.h"
#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/zero_optimizer.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

constexpr char kOfModel[] = "model.";
constexpr char kOfOptimizer[] = "optimizer.";

struct Line {
  std::string name;
  std::string kind;
};

// A line for each tensor: its name and what must be the same on all ranks.
std::string described(const torch::nn::Module& module) {
  const std::set<std::string> ignored = ignored_names(module);
  std::string text;
  for (const NamedTensor& item : model_tensors(module)) {
    text += item.name + "\t" + (ignored.contains(item.name) ? "ignored" : kind_of(item.tensor));
    text += "\n";
  }
  return text;
}

std::vector<Line> lines_of(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t tab = line.rfind('\t');
    if (tab == std::string::npos) continue;
    lines.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return lines;
}

std::string difference(const std::string& of_first, const std::string& of_other, std::size_t rank) {
  const std::vector<Line> first = lines_of(of_first);
  const std::vector<Line> other = lines_of(of_other);
  for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
    if (first[i].name != other[i].name) {
      return "the model has '" + first[i].name + "' on rank 0 where it has '" + other[i].name +
             "' on rank " + std::to_string(rank);
    }
    if (first[i].kind == other[i].kind) continue;
    return "'" + first[i].name + "' of the model is " + first[i].kind + " on rank 0 and " +
           other[i].kind + " on rank " + std::to_string(rank) +
           ": name what each rank has of its own in DataParallelOptions::ignored, before the first "
           "save";
  }
  return "the model has " + std::to_string(first.size()) + " tensors on rank 0 and " +
         std::to_string(other.size()) + " on rank " + std::to_string(rank);
}

// Of each rank, by place: how long its tensors are, in bytes.
std::vector<std::vector<std::int64_t>> lengths_of(const std::vector<NamedTensor>& own,
                                                  const Ranks& ranks) {
  std::int64_t most = 0;
  const auto count = static_cast<std::int64_t>(own.size());
  for (const at::Tensor& of_rank : ranks.all_gather(at::full({1}, count, at::kLong))) {
    most = std::max(most, of_rank.item<std::int64_t>());
  }
  std::vector<std::vector<std::int64_t>> lengths;
  if (most == 0) return lengths;
  at::Tensor mine = at::zeros({most}, at::kLong);
  for (std::size_t i = 0; i < own.size(); ++i) {
    mine[static_cast<std::int64_t>(i)] = static_cast<std::int64_t>(own[i].tensor.nbytes());
  }
  for (const at::Tensor& of_rank : ranks.all_gather(mine)) {
    const auto* first = of_rank.const_data_ptr<std::int64_t>();
    lengths.emplace_back(first, first + most);
  }
  return lengths;
}

std::string heads_of(const std::vector<NamedTensor>& tensors) {
  Json heads = Json::array();
  for (const NamedTensor& item : tensors) {
    heads.push_back(
        {item.name, static_cast<int>(item.tensor.scalar_type()), item.tensor.sizes().vec()});
  }
  return heads.dump();
}

// A tensor as `head` describes it, of the first of `bytes`.
NamedTensor tensor_from(const Json& head, const at::Tensor& bytes) {
  at::Tensor tensor = at::empty(head[2].get<std::vector<std::int64_t>>(),
                                static_cast<at::ScalarType>(head[1].get<int>()));
  if (tensor.nbytes() > 0) {
    std::memcpy(tensor.mutable_data_ptr(), bytes.const_data_ptr(), tensor.nbytes());
  }
  return {head[0].get<std::string>(), tensor};
}

}  // namespace

OwnState::OwnState(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  if (dynamic_cast<const ShardedOptimizer*>(&optimizer)) return;
  const std::set<std::string> ignored = ignored_names(module);
  if (ignored.empty()) return;
  std::set<const c10::TensorImpl*> stepped;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      stepped.insert(parameter.unsafeGetTensorImpl());
    }
  }
  for (const NamedTensor& item : named_parameters(module, true)) {
    if (!ignored.contains(item.name)) continue;
    if (!stepped.contains(item.tensor.unsafeGetTensorImpl())) continue;
    prefixes_.push_back(item.name + "/");
  }
  has_all_ = !prefixes_.empty() && dynamic_cast<const torch::optim::LBFGS*>(&optimizer);
}

bool OwnState::has(const std::string& name) const {
  if (has_all_) return name.find('/') != std::string::npos;  // all but the rates
  return std::any_of(prefixes_.begin(), prefixes_.end(),
                     [&](const std::string& prefix) { return name.starts_with(prefix); });
}

void check_same_models(const torch::nn::Module& module, const Ranks& ranks) {
  if (ranks.world_size() == 1) return;
  const std::string text = described(module);
  const auto sum = static_cast<std::int64_t>(crc32c(0, text.data(), text.size()));
  const std::vector<at::Tensor> sums = ranks.all_gather(at::full({1}, sum, at::kLong));
  const bool are_same = std::all_of(
      sums.begin(), sums.end(), [&](const at::Tensor& other) { return at::equal(other, sums[0]); });
  if (are_same) return;
  const std::vector<std::string> texts = ranks.gather_text(text);
  std::string problem;
  for (std::size_t rank = 1; rank < texts.size() && problem.empty(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    problem = "save a checkpoint: " + difference(texts[0], texts[rank], rank);
  }
  ranks.throw_first_problem(problem);
}

std::vector<NamedTensor> own_rank_tensors(const TrainingState& state, const Ranks& ranks) {
  std::vector<NamedTensor> own;
  const std::set<std::string> ignored = ignored_names(state.model);
  if (ignored.empty()) return own;  // as on all ranks
  const std::string suffix = "/" + std::to_string(ranks.rank());
  auto add = [&](const std::string& name, const at::Tensor& tensor) {
    own.push_back({name + suffix, tensor.detach().to(at::kCPU).contiguous()});
  };
  for (const NamedTensor& item : model_tensors(state.model)) {
    if (ignored.contains(item.name)) add(kOfModel + item.name, item.tensor);
  }
  std::string problem;
  if (state.optimizer && !dynamic_cast<const ShardedOptimizer*>(state.optimizer)) {
    const OwnState own_state(*state.optimizer, state.model);
    Result<std::vector<NamedTensor>> tensors = optimizer_tensors(*state.optimizer, state.model);
    if (tensors) {
      for (const NamedTensor& item : *tensors) {
        if (own_state.has(item.name)) add(kOfOptimizer + item.name, item.tensor);
      }
    } else {
      problem = "save a checkpoint: " + to_string(tensors.error());
    }
  }
  ranks.throw_first_problem(problem);
  return own;
}

std::vector<NamedTensor> gather_rank_tensors(const TrainingState& state, const Ranks& ranks) {
  std::vector<NamedTensor> own = own_rank_tensors(state, ranks);
  if (ranks.world_size() == 1) return own;
  if (ignored_names(state.model).empty()) return own;
  const std::vector<std::vector<std::int64_t>> lengths = lengths_of(own, ranks);
  if (lengths.empty()) return own;
  const std::vector<std::string> texts = ranks.gather_text(heads_of(own));
  std::vector<Json> heads;
  for (const std::string& text : texts) heads.push_back(Json::parse(text));
  std::vector<NamedTensor> all;
  // One tensor of each rank after the other, in as many bytes as the longest has.
  for (std::size_t place = 0; place < lengths[0].size(); ++place) {
    std::int64_t longest = 0;
    for (const auto& of_rank : lengths) longest = std::max(longest, of_rank[place]);
    at::Tensor bytes = at::zeros({std::max<std::int64_t>(longest, 1)}, at::kByte);
    if (place < own.size() && own[place].tensor.nbytes() > 0) {
      std::memcpy(bytes.mutable_data_ptr(), own[place].tensor.const_data_ptr(),
                  own[place].tensor.nbytes());
    }
    const std::vector<at::Tensor> of_ranks = ranks.all_gather(bytes);
    for (std::size_t rank = 0; rank < heads.size(); ++rank) {  // on rank 0
      if (place < heads[rank].size())
        all.push_back(tensor_from(heads[rank][place], of_ranks[rank]));
    }
  }
  return all;
}

void take_rank_tensors(const TensorMap& saved, int rank, TensorMap& model, TensorMap& optimizer) {
  struct Item {
    std::string name;
    at::Tensor tensor;
    int rank = 0;
  };
  std::vector<Item> items;
  bool has_saved = false;
  for (const auto& [name, tensor] : saved) {
    const std::size_t slash = name.rfind('/');
    if (slash == std::string::npos) continue;
    const std::optional<int> of = number_in<int>(std::string_view(name).substr(slash + 1));
    if (!of) continue;
    items.push_back({name.substr(0, slash), tensor, *of});
    has_saved = has_saved || *of == rank;
  }
  for (const Item& item : items) {
    if (item.rank != (has_saved ? rank : 0)) continue;
    if (item.name.starts_with(kOfModel)) {
      model[item.name.substr(sizeof kOfModel - 1)] = item.tensor;
    } else if (item.name.starts_with(kOfOptimizer)) {
      optimizer[item.name.substr(sizeof kOfOptimizer - 1)] = item.tensor;
    }
  }
}

}  // namespace ddprun::ddp
