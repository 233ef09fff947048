// SPDX-License-Identifier: BSD-3-Clause
//
// The order of a parameter's elements in memory.  c10d::Reducer lays a gradient into its bucket in
// the order of its parameter and sums the buckets' memory, so it must be the same on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/ddp/named_tensor.h"
#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// The strides of `tensor` where they are not row-major, 1 for a dimension of size 1; empty for a
// row-major tensor, and for one with gaps or overlaps, whose gradient is row-major.
std::vector<std::int64_t> memory_order(const at::Tensor& tensor);

// Returns when all ranks have rank 0's order of each of `parameters`.  With `may_change` the other
// ranks take it over first, keeping their values.  Throws the same DdpError on every rank, which
// names the parameter, where an order differs and may not or cannot be changed because other
// tensors share the memory.
void agree_on_memory_order(ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                           bool may_change);

}  // namespace ddprun::ddp
