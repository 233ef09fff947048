// SPDX-License-Identifier: BSD-3-Clause
//
// Lets a loss add nothing to the gradients, whatever its value and its gradients are.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddprun::ddp {

// A zero in the place of `loss`, a scalar.  A backward pass from it, alone or as a part of a sum,
// runs through the graph of `loss`, so that hooks and reductions take place, and brings every leaf
// there a gradient of zero, also where 0 times the loss's own would be NaN.  What other losses
// bring through the same graph stays as it is.  Tensors between get undefined gradients, as those
// do in LibTorch that no loss depends on.  The leaves among `sparse` get sparse gradients.
//
// Threads: while no backward pass runs through that graph.
at::Tensor muted(const at::Tensor& loss, const std::vector<at::Tensor>& sparse);

}  // namespace ddprun::ddp
