// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

constexpr double kTiny = 1e-6;  // torch's, so that a norm of zero divides

std::vector<at::Tensor> gradients_of(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : parameters) {
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  }
  return gradients;
}

}  // namespace

double clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                      double norm_type) {
  if (!(max_norm > 0) || std::isnan(norm_type) || norm_type == 0) {
    throw DdpError("clip_grad_norm: max_norm " + std::to_string(max_norm) + " and norm_type " +
                   std::to_string(norm_type) +
                   "; a max_norm above 0 and a norm_type that is not 0 "
                   "are accepted");
  }
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients = gradients_of(parameters);
  if (gradients.empty()) return 0;
  std::vector<at::Tensor> norms;
  for (const at::Tensor& norm : at::_foreach_norm(gradients, norm_type)) {
    norms.push_back(norm.to(gradients[0].device(), at::kDouble));
  }
  double total = at::norm(at::stack(norms), norm_type).item<double>();
  double scale = std::min(max_norm / (total + kTiny), 1.0);
  if (scale < 1 || std::isnan(scale)) at::_foreach_mul_(gradients, scale);
  return total;
}

void zero_grad(const torch::nn::Module& module, bool set_to_none) {
  at::NoGradGuard no_grad;
  for (at::Tensor& parameter : module.parameters()) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (set_to_none) {
      gradient.reset();
    } else {
      gradient = gradient.detach();  // detach_() refuses a view into a bucket
      gradient.zero_();
    }
  }
}

}  // namespace ddprun::ddp
