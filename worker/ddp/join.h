// SPDX-License-Identifier: BSD-3-Clause
//
// Uneven inputs.  Each forward begins with one small all-reduce in which every rank says whether it
// still has inputs; a rank that has none answers for every step of the others with gradients of
// zero, in the order in which c10d::Reducer sends its buckets.
#pragma once

#include <memory>
#include <vector>

#include "worker/ddp/buffer_sync.h"
#include "worker/ddp/data_parallel_options.h"
#include "worker/ddp/gradient_reducer.h"
#include "worker/ddp/process_group.h"
#include "worker/ddp/synced_module.h"

namespace ddprun::ddp {

// Throws DdpError if a module wrapped with `own` cannot be joined in this way.
void check_join(const DataParallelOptions& own, const JoinOptions& options);

// A time in which ranks may run out of inputs.  Owns which ranks took the last step, as all ranks
// know it.
//
// Lifetime: `reducer` and `buffers` are the wrapped module's and outlive it; gradients are divided
// by the world size again when it ends.
class Join {
 public:
  Join(ProcessGroup group, SyncedModule module, GradientReducer& reducer, BufferSync& buffers,
       const JoinOptions& options);
  ~Join();
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // Before a forward: tells the ranks that have no inputs left, and returns the rank whose buffers
  // count.
  int announce_step(bool is_synchronised);

  // This rank has no inputs left: takes part in the others' steps until none has any, then takes
  // over the parameters and buffers of the rank that went on longest.
  void finish();

 private:
  void shadow_step(bool is_synchronised);
  void check_early_end(const std::vector<int>& active, bool is_synchronised) const;

  ProcessGroup group_;
  SyncedModule module_;
  GradientReducer& reducer_;
  BufferSync& buffers_;
  JoinOptions options_;
  std::vector<int> last_active_;  // the ranks that took the last step
};

}  // namespace ddprun::ddp
