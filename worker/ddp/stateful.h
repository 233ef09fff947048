// SPDX-License-Identifier: BSD-3-Clause
//
// Objects that keep something from step to step and belong into a checkpoint, such as the state of
// a comm hook.  As Python's torch.distributed.checkpoint.stateful.Stateful.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace ddprun::ddp {

// By name; a name has no slash.
struct StateDict {
  std::map<std::string, at::Tensor> common{};  // the same on all ranks; rank 0's is saved
  std::map<std::string, at::Tensor> own{};     // of each rank
};

class Stateful {
 public:
  virtual ~Stateful() = default;

  // What is to be saved, called on all ranks, between two steps.  Names, shapes and dtypes are the
  // same on all ranks.
  virtual StateDict state_dict() const = 0;

  // Takes over a state that was saved.  Where the number of ranks has changed, `own` has the means
  // over those that saved it (of integers, those of rank 0).  Throws DdpError for a state that is
  // none of this kind; a program of its own may throw anything.
  virtual void load_state_dict(const StateDict& state) = 0;

 protected:
  Stateful() = default;
  Stateful(const Stateful&) = default;
  Stateful& operator=(const Stateful&) = default;
};

}  // namespace ddprun::ddp
