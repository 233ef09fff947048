// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradient_mute.h"

#include <ATen/ATen.h>

#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {

at::Tensor GradientMute::mute(const at::Tensor& loss) {
  if (!is_muted_) {
    is_muted_ = std::make_shared<bool>();
    for (const NamedTensor& item : named_parameters(*module_, false)) {
      if (!item.tensor.requires_grad()) continue;
      item.tensor.register_hook([is_muted = is_muted_](const at::Tensor& gradient) {
        return *is_muted ? at::zeros_like(gradient) : gradient;
      });
    }
  }
  *is_muted_ = true;
  return (loss * 0).nan_to_num(0, 0, 0);
}

void GradientMute::lift() {
  if (is_muted_) *is_muted_ = false;
}

}  // namespace ddprun::ddp
