// SPDX-License-Identifier: BSD-3-Clause
//
// What of a wrapped module the ranks keep equal: all of it, less what the program sees to itself
// (DataParallelOptions::ignored).
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {

// Copies share the module.
class SyncedModule {
 public:
  // Throws DdpError for a name of no parameter and no buffer.
  SyncedModule(std::shared_ptr<torch::nn::Module> module, const std::vector<std::string>& ignored);

  // With what is ignored.
  const torch::nn::Module& whole() const { return *module_; }

  // Each tensor once, in the module's order.  One that has several names counts if one of these is
  // not ignored.
  std::vector<NamedTensor> parameters() const;
  std::vector<NamedTensor> buffers() const;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  std::set<std::string> ignored_;
};

}  // namespace ddprun::ddp
