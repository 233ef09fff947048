// SPDX-License-Identifier: BSD-3-Clause
//
// What is done to the gradients of a whole module, on this rank alone.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {

// Scales the gradients down where their norm, over all of them as one vector, is above `max_norm`;
// returns the norm before, 0 without gradients.  `norm_type` is p of the p-norm, infinity for the
// maximum.  Throws DdpError unless max_norm is above 0 and norm_type is a number other than 0.
double clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                      double norm_type);

// Forgets the gradients, or sets them to zero in place when `set_to_none` is false, also those that
// are views into buckets.
void zero_grad(const torch::nn::Module& module, bool set_to_none);

}  // namespace ddprun::ddp
