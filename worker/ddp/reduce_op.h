// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace ddprun::ddp {

// What becomes of the values of the ranks.  Mean is of floating point and complex tensors; Min and
// Max are not of complex ones.
enum class ReduceOp : std::uint8_t { Sum, Mean, Product, Min, Max };

}  // namespace ddprun::ddp
