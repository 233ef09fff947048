// SPDX-License-Identifier: BSD-3-Clause
//
// Small modules that are awkward in one way each, and their data.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

namespace ddprun::ddp::test {

// Layers of uneven sizes, one of them frozen, one in double precision.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    register_module("first", first);
    register_module("frozen", frozen);
    register_module("wide", wide);
    register_module("last", last);
    frozen->weight.requires_grad_(false);
    last->to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor hidden = torch::tanh(wide(frozen(torch::relu(first(x)))));
    return last(hidden.to(torch::kDouble)).to(torch::kFloat);
  }
  torch::nn::Linear first{6, 5};
  torch::nn::Linear frozen{5, 5};
  torch::nn::Linear wide{5, 70};
  torch::nn::Linear last{70, 3};
};
TORCH_MODULE(Mixed);

// Convolution and batch normalisation: buffers, one of them of integers.
struct NormalisedImpl : torch::nn::Module {
  NormalisedImpl() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("out", out);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return out(torch::relu(norm(conv(x))).flatten(1));
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear out{4 * 2 * 2, 3};
};
TORCH_MODULE(Normalised);

// Takes one branch or the other; the one left out gets no gradient.  Two inputs, two outputs.
struct BranchingImpl : torch::nn::Module {
  BranchingImpl() {
    register_module("stem", stem);
    register_module("left", left);
    register_module("right", right);
    register_module("never", never);
  }
  std::map<std::string, torch::Tensor> forward(const torch::Tensor& x, bool go_left) {
    torch::Tensor hidden = torch::relu(stem(x));
    return {{"main", go_left ? left(hidden) : right(hidden)}, {"hidden", hidden}};
  }
  torch::nn::Linear stem{6, 8};
  torch::nn::Linear left{8, 3};
  torch::nn::Linear right{8, 3};
  torch::nn::Linear never{8, 3};
};
TORCH_MODULE(Branching);

// Two names for one weight.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("into", into);
    shared = register_parameter("shared", into->weight);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::linear(torch::tanh(into(x)), shared).slice(1, 0, 3);
  }
  torch::nn::Linear into{6, 6};
  torch::Tensor shared;
};
TORCH_MODULE(Tied);

// The inputs of `rank` in `step`, the same in every run.
inline torch::Tensor inputs(int rank, int step, torch::IntArrayRef shape) {
  torch::Generator generator = torch::make_generator<torch::CPUGeneratorImpl>(
      static_cast<std::uint64_t>(1000 * step + rank));
  return torch::randn(shape, generator);
}

}  // namespace ddprun::ddp::test
