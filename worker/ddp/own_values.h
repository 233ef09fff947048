// SPDX-License-Identifier: BSD-3-Clause
//
// Where the values of full precision are while mixed_precision has put others into a module's
// parameters: from a forward with gradients to the end of the backward that reduces.
#pragma once

#include <torch/nn/module.h>

namespace ddprun::ddp {

// The values of full precision of `parameter`: a tensor in their own memory, or `parameter` itself
// where no others have taken their place.  Threads: that which trains the module.
at::Tensor own_values_of(const at::Tensor& parameter);

// Gives all parameters of `module` their own values, so that they can be replaced.  No backward()
// of the forward before may follow.  Threads: the same.
void give_back_own_values(const torch::nn::Module& module);

}  // namespace ddprun::ddp
