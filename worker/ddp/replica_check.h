// SPDX-License-Identifier: BSD-3-Clause
//
// Whether the ranks still hold the same parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/ddp/named_tensor.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// A hash of the values in `tensor`, bit for bit, in the order of its indices: of any strides, on
// any device.  The same on every machine of the same byte order.
std::uint64_t hash_of(const at::Tensor& tensor);

// All ranks call it with the same names; sends one hash for each parameter.  Throws on every rank
// the same DdpError when a parameter's values differ between ranks: it names the first such
// parameter and the ranks that differ from rank 0.
void check_replicas(ProcessGroup& group, const std::vector<NamedTensor>& parameters);

// Owns the count of steps after which a module is checked; the same on all ranks.
class ReplicaCheck {
 public:
  // `every` is the option check_replicas_every; 0: never.
  ReplicaCheck(ProcessGroup group, SyncedModule module, std::int64_t every)
      : group_(std::move(group)), module_(std::move(module)), every_(every) {}

  // Before a forward whose backward synchronises.  Throws as check_replicas() does.
  void before_forward();

 private:
  ProcessGroup group_;
  SyncedModule module_;
  std::int64_t every_;
  std::int64_t forwards_ = 0;
};

}  // namespace ddprun::ddp
