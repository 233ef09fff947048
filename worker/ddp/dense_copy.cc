// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/dense_copy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace ddprun::ddp {

at::Tensor dense_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return tensor;
  return tensor.resolve_conj().resolve_neg().contiguous();
}

void copy_back(const at::Tensor& dense, const at::Tensor& tensor) {
  if (dense.is_same(tensor)) return;
  at::NoGradGuard no_grad;
  std::optional<c10::InferenceMode> mode;  // outside it such a tensor cannot be written
  if (tensor.is_inference()) mode.emplace();
  at::Tensor from = dense;
  at::Tensor to = tensor;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.stride(i) != 0 || tensor.size(i) < 2) continue;
    from = from.narrow(i, 0, 1);
    to = to.narrow(i, 0, 1);
  }
  to.copy_(from);
}

}  // namespace ddprun::ddp
