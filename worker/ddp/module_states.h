// SPDX-License-Identifier: BSD-3-Clause
//
// How the ranks come to hold the same module: they compare what they have built, and take over one
// rank's parameters and buffers.  All ranks call these functions together.
#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <vector>

#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// Returns when all ranks have modules of the same parameters and buffers, and the same options;
// else throws the same DdpError on every rank, which names the first difference.
void verify_same_modules(ProcessGroup& group, const SyncedModule& module,
                         const DataParallelOptions& options);

// Returns if the module of every rank is on the one device that this rank gives; for none, at once.
// Else throws the same DdpError on every rank, which names the first tensor that is elsewhere.  All
// ranks give as many, which verify_same_modules() has compared.
void verify_device(ProcessGroup& group, const SyncedModule& module,
                   const std::vector<at::Device>& device_ids);

// Returns when the parameters of all ranks lie in memory alike and, with `init_sync`, all ranks
// hold rank 0's parameters and buffers.  Throws as agree_on_memory_order() does.
void init_module_states(ProcessGroup& group, const SyncedModule& module, bool init_sync);

// Gives every rank the parameters and buffers of `root`.
void broadcast_module_states(ProcessGroup& group, const SyncedModule& module, int root);

// Gives every rank the buffers of `root`.  Reads the module again each time, which may have put new
// tensors in the place of its buffers.
void broadcast_buffers(ProcessGroup& group, const SyncedModule& module, int root);

// Throws DdpError, with the name of the first such tensor, if to(device, dtype) would give a
// parameter or buffer of a wrapped module other memory, of which the Reducer would know nothing;
// unset: as it is.  Talks to no other rank.
void check_that_nothing_moves(const torch::nn::Module& module, std::optional<at::Device> device,
                              std::optional<at::ScalarType> dtype);

}  // namespace ddprun::ddp
