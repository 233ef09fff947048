// SPDX-License-Identifier: BSD-3-Clause
//
// What DataParallelOptions::mixed_precision asks for.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

namespace ddprun::ddp {

// Of the floating-point parameters and buffers of a module, less the ignored ones.
struct MixedPrecision {
  // Of the parameters in forward and backward, and of the tensors that are given to forward().
  at::ScalarType param_dtype = at::kBFloat16;

  // In which gradients are added up over the ranks.  Unset: param_dtype.
  std::optional<at::ScalarType> reduce_dtype{};

  // Of the buffers, from the wrapping on.  Unset: as they are.
  std::optional<at::ScalarType> buffer_dtype{};
};

}  // namespace ddprun::ddp
