// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/named_tensor.h"

#include <unordered_set>

namespace ddprun::ddp {
namespace {

std::vector<NamedTensor> listed(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                                bool with_duplicates) {
  std::vector<NamedTensor> kept;
  std::unordered_set<c10::TensorImpl*> seen;
  for (const auto& item : tensors) {
    if (!item.value().defined()) continue;
    bool is_new = seen.insert(item.value().unsafeGetTensorImpl()).second;
    if (is_new || with_duplicates) kept.push_back({item.key(), item.value()});
  }
  return kept;
}

}  // namespace

std::string kind_of(const at::Tensor& tensor) {
  std::string text = std::string(c10::toString(tensor.scalar_type())) + " [";
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(tensor.size(i));
  }
  return text + "]";
}

std::vector<NamedTensor> named(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<NamedTensor> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
  return list;
}

std::vector<NamedTensor> named_parameters(const torch::nn::Module& module, bool with_duplicates) {
  return listed(module.named_parameters(), with_duplicates);
}

std::vector<NamedTensor> named_buffers(const torch::nn::Module& module, bool with_duplicates) {
  return listed(module.named_buffers(), with_duplicates);
}

}  // namespace ddprun::ddp
