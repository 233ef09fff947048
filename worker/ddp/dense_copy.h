// SPDX-License-Identifier: BSD-3-Clause
//
// Row-major copies of tensors for transports that send a tensor's memory as it lies: a view with
// gaps, another order of elements than on the other ranks, or values that are yet to be conjugated
// or negated, would come out wrong.
#pragma once

#include <ATen/core/Tensor.h>

namespace ddprun::ddp {

// `tensor` itself where its memory holds its values in their order or it is not strided at all,
// else a copy of which that is true.
at::Tensor dense_of(const at::Tensor& tensor);

// Gives `tensor` the values of `dense`, which dense_of() made of it; nothing to do where they are
// the same.  Of elements that share memory (expand()) the first is taken.  Throws what LibTorch
// does for tensors that overlap in another way.
void copy_back(const at::Tensor& dense, const at::Tensor& tensor);

}  // namespace ddprun::ddp
