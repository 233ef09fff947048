// SPDX-License-Identifier: BSD-3-Clause
//
// What becomes of the batch when a run goes on with more or fewer ranks.  Either the global batch
// stays, and each rank takes a larger or smaller part of it, in several passes where it does not
// fit; or each rank's batch stays, and the learning rate follows the global one.
//
// Pure arithmetic: no LibTorch, no group.  Every rank computes the same plan.
#pragma once

#include <cstdint>
#include <vector>

#include "store/base/error.h"
#include "worker/data/sampler.h"

namespace ddprun::ddp {

enum class BatchPolicy : std::uint8_t {
  KeepGlobal,  // an optimizer step sees as many samples in every world: the same training
  KeepLocal,   // each rank does as much work per step; the learning rate scales with the world
};

struct BatchOptions {
  BatchPolicy policy = BatchPolicy::KeepGlobal;
  std::int64_t global_batch = 1;  // samples per optimizer step, over all ranks; 1 or more
  int reference_world_size = 1;   // the ranks that global_batch was chosen for; KeepLocal scales it

  // Samples that fit into one forward and backward of a rank; 0: as many as there are.
  std::int64_t max_micro_batch = 0;
};

struct BatchPlan {
  std::int64_t step_size = 1;  // samples per optimizer step, over all ranks: SamplerOptions's
  int passes = 1;              // forwards and backwards of each rank per step, the same on all
  double lr_scale = 1;         // multiply the learning rate of the reference world by it

  friend bool operator==(const BatchPlan&, const BatchPlan&) = default;
};

// The plan for `world_size` ranks.  Fails with Errc::InvalidInput, naming the field, for a number
// out of its range.  KeepLocal rounds the global batch down to whole samples, and gives each rank
// one at least.
Result<BatchPlan> plan_batches(const BatchOptions& options, int world_size);

// Deals a rank's `share` of a step out to its `passes`; for DistributedDataParallel::accumulate().
// Each part's weight makes up for parts of different sizes.  A part is never empty, because every
// pass must reach the same parameters: where there are fewer samples than passes, it holds one that
// another part has, with weight 0.
std::vector<Share> split(const Share& share, int passes);

}  // namespace ddprun::ddp
