// SPDX-License-Identifier: BSD-3-Clause
//
// Whether each backward pass has given every parameter a gradient.  c10d::Reducer knows it too, and
// says so at the next forward only, on the rank that left one out; the others wait meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace ddprun::ddp {

// Watches the gradients of some parameters arrive.
//
// Threads: used from one thread, beside autograd's own; the callback runs on the thread of
// backward(), at its end.  Lifetime: the parameters may outlive it.
class GradientWatch {
 public:
  // Called with the indices of the parameters that have had no gradient since expect(); empty when
  // all have.  Not called after a backward pass that reached none of them.
  using AtEnd = std::function<void(const std::vector<std::size_t>& missing)>;

  // With `is_static`, what the first backward pass reaches is what the later ones are to reach.
  GradientWatch(const std::vector<at::Tensor>& parameters, bool is_static, AtEnd at_end);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // The next backward passes are to reach all parameters, in one pass or in several.
  void expect();

  // The next ones are not looked at.
  void ignore();

  // For parameters that have other gradient accumulators than at construction: called on the thread
  // of backward() when the gradient of the parameter `index` has arrived.
  void arrived(std::size_t index);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddprun::ddp
