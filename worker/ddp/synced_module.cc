// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/synced_module.h"

#include <algorithm>
#include <unordered_set>

#include "worker/ddp/error.h"
#include "worker/ddp/ignored_names.h"

namespace ddprun::ddp {
namespace {

std::vector<NamedTensor> without(const std::set<std::string>& ignored,
                                 const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> kept;
  std::unordered_set<c10::TensorImpl*> seen;
  for (const NamedTensor& item : tensors) {
    if (ignored.contains(item.name)) continue;
    if (seen.insert(item.tensor.unsafeGetTensorImpl()).second) kept.push_back(item);
  }
  return kept;
}

}  // namespace

SyncedModule::SyncedModule(std::shared_ptr<torch::nn::Module> module,
                           const std::vector<std::string>& ignored)
    : module_(std::move(module)), ignored_(ignored.begin(), ignored.end()) {
  std::set<std::string> unknown = ignored_;
  for (const NamedTensor& item : named_parameters(*module_, true)) unknown.erase(item.name);
  for (const NamedTensor& item : named_buffers(*module_, true)) unknown.erase(item.name);
  if (!unknown.empty()) {
    throw DdpError("ignored: the module has no parameter and no buffer '" + *unknown.begin() +
                   "'; names are those of named_parameters() and named_buffers()");
  }
  note_ignored_names(module_, ignored_);
}

std::vector<NamedTensor> SyncedModule::parameters() const {
  return without(ignored_, named_parameters(*module_, true));
}

std::vector<NamedTensor> SyncedModule::buffers() const {
  return without(ignored_, named_buffers(*module_, true));
}

}  // namespace ddprun::ddp
