// SPDX-License-Identifier: BSD-3-Clause
//
// What each backward pass has brought: which parameters it has left out, and whether a gradient
// comes after the reduction.  c10d::Reducer knows the first too, and says so at the next forward
// only, on the rank that left one out; the others wait meanwhile.  Of the second it says nothing:
// the gradient stays on its rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace ddprun::ddp {

// Watches the gradients of some parameters arrive.
//
// Threads: used from one thread, beside autograd's own; the callback runs on the thread of
// backward(), at its end.  Lifetime: the parameters and the outputs may outlive it.
class GradientWatch {
 public:
  // Called with the indices of the parameters that have had no gradient since expect(); empty when
  // all have.  Not called after a backward pass that brought none of them, as that of
  // autograd::grad().
  using AtEnd = std::function<void(const std::vector<std::size_t>& missing)>;

  // With `is_static`, what the first backward pass reaches is what the later ones are to reach, and
  // when that pass has failed, another one from the same outputs throws DdpError.
  GradientWatch(const std::vector<at::Tensor>& parameters, bool is_static, AtEnd at_end);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // After a forward: the next backward passes are to reach all parameters, in one pass or in
  // several.  A parameter that one of `outputs` brings a gradient in a later pass than its first
  // one is reduced already: that pass throws DdpError.
  void expect(const std::vector<at::Tensor>& outputs);

  // After a forward that does not synchronise: its backward passes are not looked at, unless the
  // gradients of the forward before are still to come.
  void ignore();

  // For parameters that have other gradient accumulators than at construction: called on the thread
  // of backward() when the gradient of the parameter `index` has arrived.
  void arrived(std::size_t index);

  // Whether a first pass of a static graph would teach what is not so: one before it has thrown, or
  // gradients have come that were not expected.  Not asked while one runs.
  bool is_spoilt() const;

  // Whether the last pass has thrown, and had brought a gradient.  Not asked while one runs.
  bool has_failed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // hooks on the outputs hold it as well
};

}  // namespace ddprun::ddp
