// SPDX-License-Identifier: BSD-3-Clause
//
// Gives every rank one rank's buffers before the forwards, as Python's DDP does.
#pragma once

#include "worker/ddp/process_group.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// Owns the knowledge of when buffers are due: before a forward that follows one which synchronised.
// The ranks call both functions at the same places, so it is the same on all.
class BufferSync {
 public:
  // `is_on` is the option broadcast_buffers; without it, and in a world of one, nothing is ever
  // due.
  BufferSync(ProcessGroup group, SyncedModule module, bool is_on)
      : group_(std::move(group)),
        module_(std::move(module)),
        is_on_(is_on && group_.world_size() > 1) {}

  // Gives every rank the buffers of `root` if they are due.
  void before_forward(int root);

  void after_forward(bool is_synchronised) { is_due_ = is_synchronised; }

 private:
  ProcessGroup group_;
  SyncedModule module_;
  bool is_on_;
  bool is_due_ = true;
};

}  // namespace ddprun::ddp
