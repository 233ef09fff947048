// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/stateful_tensors.h"

#include <ATen/ATen.h>

#include "store/base/number.h"
#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

// A tensor with its name in the file, but for the rank.
struct Item {
  NamedTensor named;
  bool is_common = false;
};

std::string name_of(const Item& item, int rank) {
  return item.is_common ? item.named.name : item.named.name + "/" + std::to_string(rank);
}

void add(const std::string& object, const std::map<std::string, at::Tensor>& tensors,
         bool is_common, std::vector<Item>& items) {
  for (const auto& [name, tensor] : tensors) {
    if (name.empty() || name.find('/') != std::string::npos) {
      throw DdpError("'" + name + "' of '" + object + "' is no name for a part of a state");
    }
    const at::Tensor plain = tensor.detach().to(at::kCPU).contiguous();
    items.push_back({{object + "." + name, plain}, is_common});
  }
}

std::vector<Item> items_of(const StatefulObjects& objects) {
  std::vector<Item> items;
  for (const auto& [name, object] : objects) {
    if (name.empty() || name.find_first_of("./") != std::string::npos || object == nullptr) {
      throw DdpError("TrainingState::stateful: '" + name + "' is no name, or has no object");
    }
    const StateDict state = object->state_dict();
    add(name, state.common, true, items);
    add(name, state.own, false, items);
  }
  return items;
}

// This rank's, once it is known that they are the same on all.
std::vector<Item> agreed_items(const StatefulObjects& objects, const Ranks& ranks) {
  std::vector<Item> items;
  if (objects.empty()) return items;  // as on all ranks
  std::string problem;
  std::string text;
  try {
    items = items_of(objects);
    for (const Item& item : items) {
      text += item.named.name + (item.is_common ? " " : "/ ") + kind_of(item.named.tensor) + "\n";
    }
  } catch (const std::exception& error) {
    problem = std::string("save a checkpoint: ") + error.what();
  }
  ranks.throw_first_problem(problem);
  const std::vector<std::string> texts = ranks.gather_text(text);
  for (std::size_t rank = 1; rank < texts.size() && problem.empty(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    problem = "save a checkpoint: the states in TrainingState::stateful are others on rank " +
              std::to_string(rank) + " than on rank 0";
  }
  ranks.throw_first_problem(problem);
  return items;
}

// What was saved of one object: its common tensors, and each rank's by name.
struct SavedState {
  std::map<std::string, at::Tensor> common;
  std::map<std::string, std::map<int, at::Tensor>> of_ranks;
};

std::map<std::string, SavedState> by_object(const TensorMap& saved) {
  std::map<std::string, SavedState> objects;
  for (const auto& [name, tensor] : saved) {
    const std::size_t dot = name.find('.');
    if (dot == std::string::npos) continue;
    SavedState& object = objects[name.substr(0, dot)];
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos) {
      object.common[name.substr(dot + 1)] = tensor;
    } else if (std::optional<int> rank =
                   ddprun::number_in<int>(std::string_view(name).substr(slash + 1))) {
      object.of_ranks[name.substr(dot + 1, slash - dot - 1)][*rank] = tensor;
    }
  }
  return objects;
}

at::Tensor own_part(const std::map<int, at::Tensor>& of_ranks, const Ranks& ranks) {
  const bool is_same_world = static_cast<int>(of_ranks.size()) == ranks.world_size();
  if (is_same_world && of_ranks.contains(ranks.rank())) return of_ranks.at(ranks.rank()).clone();
  const at::Tensor& first = of_ranks.begin()->second;
  if (!first.is_floating_point() && !first.is_complex()) return first.clone();
  at::Tensor sum = at::zeros_like(first);
  for (const auto& [rank, tensor] : of_ranks) sum.add_(tensor);
  return sum.div_(static_cast<double>(of_ranks.size()));
}

}  // namespace

std::vector<NamedTensor> own_stateful_tensors(const StatefulObjects& objects, const Ranks& ranks) {
  std::vector<NamedTensor> tensors;
  for (const Item& item : agreed_items(objects, ranks)) {
    if (item.is_common && ranks.rank() != 0) continue;
    tensors.push_back({name_of(item, ranks.rank()), item.named.tensor});
  }
  return tensors;
}

std::vector<NamedTensor> gather_stateful_tensors(const StatefulObjects& objects,
                                                 const Ranks& ranks) {
  std::vector<NamedTensor> all;
  for (const Item& item : agreed_items(objects, ranks)) {
    if (item.is_common) {
      if (ranks.rank() == 0) all.push_back(item.named);
      continue;
    }
    const std::vector<at::Tensor> of_ranks = ranks.all_gather(item.named.tensor);
    for (std::size_t rank = 0; rank < of_ranks.size() && ranks.rank() == 0; ++rank) {
      all.push_back({name_of(item, static_cast<int>(rank)), of_ranks[rank]});
    }
  }
  return all;
}

Result<void> restore_stateful(const StatefulObjects& objects, const TensorMap& saved,
                              const Ranks& ranks) {
  const std::map<std::string, SavedState> states = by_object(saved);
  for (const auto& [name, object] : objects) {
    const auto found = states.find(name);
    if (found == states.end()) {
      return Error{Errc::Protocol, "it has no state of '" + name + "' (TrainingState::stateful)"};
    }
    StateDict state;
    for (const auto& [key, tensor] : found->second.common) state.common[key] = tensor.clone();
    for (const auto& [key, of_ranks] : found->second.of_ranks) {
      state.own[key] = own_part(of_ranks, ranks);
    }
    object->load_state_dict(state);
  }
  return {};
}

}  // namespace ddprun::ddp
