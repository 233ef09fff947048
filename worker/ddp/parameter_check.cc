// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/parameter_check.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/variable.h>

#include "worker/ddp/error.h"
#include "worker/ddp/named_tensor.h"

namespace ddprun::ddp {
namespace {

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(at::Tensor()));

[[noreturn]] void refuse(const std::string& name, const std::string& change) {
  throw DdpError("the parameter " + name + " " + change +
                 ": its gradients would stay on this rank. Call to() and requires_grad_() before "
                 "the module is wrapped, or wrap it anew on all ranks");
}

}  // namespace

struct ParameterCheck::Reduced {
  std::string name;
  at::Tensor tensor;
  at::ScalarType dtype;
  at::Device device;
  Accumulator accumulator;  // which the Reducer listens to; a conversion makes another one
};

ParameterCheck::ParameterCheck(const SyncedModule& module, const ReducerConfig& config,
                               bool changes_dtypes) {
  for (std::size_t i = 0; i < config.parameters.size() && !changes_dtypes; ++i) {
    const at::Tensor& tensor = config.parameters[i];
    reduced_.push_back({.name = config.names[i],
                        .tensor = tensor,
                        .dtype = tensor.scalar_type(),
                        .device = tensor.device(),
                        .accumulator = torch::autograd::impl::grad_accumulator(tensor)});
  }
  for (const NamedTensor& item : module.parameters()) {
    if (!item.tensor.requires_grad()) frozen_.push_back({.name = item.name, .tensor = item.tensor});
  }
}

ParameterCheck::~ParameterCheck() = default;

void ParameterCheck::run() const {
  for (const Reduced& item : reduced_) {
    if (torch::autograd::impl::try_get_grad_accumulator(item.tensor) == item.accumulator) continue;
    if (item.tensor.scalar_type() == item.dtype && item.tensor.device() == item.device) {
      refuse(item.name, "was converted after the module was wrapped");
    }
    refuse(item.name, c10::str("was ", item.dtype, " on ", item.device,
                               " when the module was wrapped, and is ", item.tensor.scalar_type(),
                               " on ", item.tensor.device()));
  }
  for (const Frozen& item : frozen_) {
    if (!item.tensor.requires_grad()) continue;
    refuse(item.name, "needed no gradient when the module was wrapped, and needs one now");
  }
}

}  // namespace ddprun::ddp
