// SPDX-License-Identifier: BSD-3-Clause
#include "worker/data/batch_plan.h"

#include <algorithm>
#include <string>

#include "store/base/check.h"

namespace ddprun::ddp {
namespace {

Error below(const char* field, std::int64_t value, int least) {
  return Error{Errc::InvalidInput, std::string(field) + " is " + std::to_string(value) + "; " +
                                       std::to_string(least) + " or more is accepted"};
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace

Result<BatchPlan> plan_batches(const BatchOptions& options, int world_size) {
  if (options.global_batch < 1) return below("global_batch", options.global_batch, 1);
  if (options.reference_world_size < 1) {
    return below("reference_world_size", options.reference_world_size, 1);
  }
  if (options.max_micro_batch < 0) return below("max_micro_batch", options.max_micro_batch, 0);
  if (world_size < 1) return below("world_size", world_size, 1);

  BatchPlan plan{.step_size = options.global_batch};
  if (options.policy == BatchPolicy::KeepLocal) {
    plan.step_size = std::max<std::int64_t>(
        options.global_batch * world_size / options.reference_world_size, world_size);
    plan.lr_scale = static_cast<double>(plan.step_size) / static_cast<double>(options.global_batch);
  }
  if (options.max_micro_batch > 0) {
    std::int64_t largest_share = divided_up(plan.step_size, world_size);
    plan.passes = static_cast<int>(divided_up(largest_share, options.max_micro_batch));
  }
  return plan;
}

std::vector<Share> split(const Share& share, int passes) {
  check(passes >= 1 && !share.indices.empty(), "a share is dealt out to one pass or more");
  const auto count = static_cast<std::int64_t>(share.indices.size());
  std::vector<Share> parts;
  std::int64_t begin = 0;
  for (int pass = 0; pass < passes; ++pass) {
    std::int64_t size = count / passes + (pass < count % passes ? 1 : 0);
    Share part;
    part.weight = share.weight * static_cast<double>(size * passes) / static_cast<double>(count);
    if (size == 0) {
      part.indices = {share.indices[0]};
    } else {
      part.indices.assign(share.indices.begin() + begin, share.indices.begin() + begin + size);
    }
    begin += size;
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace ddprun::ddp
