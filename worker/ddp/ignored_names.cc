// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/ignored_names.h"

#include <map>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {
namespace {

struct Noted {
  std::weak_ptr<torch::nn::Module> module;  // another one may come to have its address
  std::set<std::string> names;
};

struct Notes {
  std::mutex mutex;
  std::map<const torch::nn::Module*, Noted> of_modules;
};

Notes& notes() {
  static Notes all;
  return all;
}

void collect(const torch::nn::Module& module, const std::string& prefix,
             std::set<std::string>& names) {
  const auto found = notes().of_modules.find(&module);
  if (found != notes().of_modules.end() && !found->second.module.expired()) {
    for (const std::string& name : found->second.names) names.insert(prefix + name);
  }
  for (const auto& child : module.named_children()) {
    collect(*child.value(), prefix + child.key() + ".", names);
  }
}

}  // namespace

void note_ignored_names(const std::shared_ptr<torch::nn::Module>& module,
                        const std::set<std::string>& names) {
  const std::lock_guard lock(notes().mutex);
  std::erase_if(notes().of_modules, [&](const auto& noted) {
    return noted.first == module.get() || noted.second.module.expired();
  });
  if (!names.empty()) notes().of_modules[module.get()] = {module, names};
}

std::set<std::string> ignored_names(const torch::nn::Module& module) {
  std::set<std::string> names;
  {
    const std::lock_guard lock(notes().mutex);
    if (notes().of_modules.empty()) return names;
    collect(module, "", names);
  }
  if (names.empty()) return names;
  std::vector<NamedTensor> tensors = named_parameters(module, true);
  for (NamedTensor& buffer : named_buffers(module, true)) tensors.push_back(std::move(buffer));
  std::unordered_set<c10::TensorImpl*> equal;
  for (const NamedTensor& item : tensors) {
    if (!names.contains(item.name)) equal.insert(item.tensor.unsafeGetTensorImpl());
  }
  for (const NamedTensor& item : tensors) {
    if (equal.contains(item.tensor.unsafeGetTensorImpl())) names.erase(item.name);
  }
  return names;
}

}  // namespace ddprun::ddp
