// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

namespace ddprun::ddp {

// Which parameters, as indices into those that need a gradient, are reduced together, and in which
// order.  Sums over more than two ranks come out in other bits with another layout.
using BucketLayout = std::vector<std::vector<std::size_t>>;

}  // namespace ddprun::ddp
