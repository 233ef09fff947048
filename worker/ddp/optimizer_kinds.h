// SPDX-License-Identifier: BSD-3-Clause
//
// LibTorch's optimizers, and which fields the state of each has for a parameter.  Private to
// optimizer_state.cc.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>

#include "store/base/error.h"

namespace ddprun::ddp {

enum class OptimizerKind : std::uint8_t { Sgd, Adam, AdamW, RmsProp, Adagrad, Lbfgs };

// Of a ZeroRedundancyOptimizer that of its local one.  Fails with Errc::NotSupported for the
// program's own kinds.
Result<OptimizerKind> kind_of_optimizer(const torch::optim::Optimizer& optimizer);

// As LibTorch and Python name it: "Adam".
const char* name_of(OptimizerKind kind);

// Whether a parameter's state has what Adam keeps for its variant amsgrad.
bool has_amsgrad(OptimizerKind kind, const torch::optim::OptimizerOptions& options);

// A state without content.
std::unique_ptr<torch::optim::OptimizerParamState> new_state(OptimizerKind kind);

// How many tensors of a parameter's size its state will have, by the settings of its group.
int expected_fields(OptimizerKind kind, const torch::optim::OptimizerOptions& options);

// each_field(state, field) calls `field(name, value)` for each field of a state, by the name that
// Python's optimizer gives it; `value` is the field itself: an at::Tensor (undefined when there is
// none), a number, or a std::deque<at::Tensor>.
template <class Field>
void each_field(torch::optim::SGDParamState& state, Field& field) {
  field("momentum_buffer", state.momentum_buffer());
}

template <class State, class Field>
void each_field_of_adam(State& state, Field& field) {
  field("step", state.step());
  field("exp_avg", state.exp_avg());
  field("exp_avg_sq", state.exp_avg_sq());
  field("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class Field>
void each_field(torch::optim::AdamParamState& state, Field& field) {
  each_field_of_adam(state, field);
}
template <class Field>
void each_field(torch::optim::AdamWParamState& state, Field& field) {
  each_field_of_adam(state, field);
}

template <class Field>
void each_field(torch::optim::RMSpropParamState& state, Field& field) {
  field("step", state.step());
  field("square_avg", state.square_avg());
  field("momentum_buffer", state.momentum_buffer());
  field("grad_avg", state.grad_avg());
}

template <class Field>
void each_field(torch::optim::AdagradParamState& state, Field& field) {
  field("step", state.step());
  field("sum", state.sum());
}

// Of LBFGS, whose one state is that of its first parameter, and whose tensors are as long as all
// parameters together.  `al` is left out: it is scratch memory within a step.
template <class Field>
void each_field(torch::optim::LBFGSParamState& state, Field& field) {
  field("func_evals", state.func_evals());
  field("n_iter", state.n_iter());
  field("t", state.t());
  field("prev_loss", state.prev_loss());
  field("d", state.d());
  field("H_diag", state.H_diag());
  field("prev_flat_grad", state.prev_flat_grad());
  field("old_dirs", state.old_dirs());
  field("old_stps", state.old_stps());
  field("ro", state.ro());
}

// The same for a state of `kind`; false when it is of another class: a program's own heir of the
// optimizer keeps something else.
template <class Field>
bool each_field(OptimizerKind kind, torch::optim::OptimizerParamState& state, Field& field) {
  auto try_as = [&]<class State>(State* as) {
    if (as) each_field(*as, field);
    return as != nullptr;
  };
  switch (kind) {
    case OptimizerKind::Sgd:
      return try_as(dynamic_cast<torch::optim::SGDParamState*>(&state));
    case OptimizerKind::Adam:
      return try_as(dynamic_cast<torch::optim::AdamParamState*>(&state));
    case OptimizerKind::AdamW:
      return try_as(dynamic_cast<torch::optim::AdamWParamState*>(&state));
    case OptimizerKind::RmsProp:
      return try_as(dynamic_cast<torch::optim::RMSpropParamState*>(&state));
    case OptimizerKind::Adagrad:
      return try_as(dynamic_cast<torch::optim::AdagradParamState*>(&state));
    case OptimizerKind::Lbfgs:
      return try_as(dynamic_cast<torch::optim::LBFGSParamState*>(&state));
  }
  return false;
}

}  // namespace ddprun::ddp
