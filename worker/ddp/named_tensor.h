// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>
#include <vector>

namespace ddprun::ddp {

// A parameter or buffer with its name in the module, or another tensor of a checkpoint.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// "Float [3, 4]": what must agree before two tensors can stand for each other.
std::string kind_of(const at::Tensor& tensor);

// The entries of a map, in its order.
std::vector<NamedTensor> named(const std::map<std::string, at::Tensor>& tensors);

// The module's parameters in order of registration.  Without duplicates, a tensor that several
// names share is there once, under its first name.
std::vector<NamedTensor> named_parameters(const torch::nn::Module& module, bool with_duplicates);
std::vector<NamedTensor> named_buffers(const torch::nn::Module& module, bool with_duplicates);

}  // namespace ddprun::ddp
