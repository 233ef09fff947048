// SPDX-License-Identifier: BSD-3-Clause
//
// An optimizer's state by the names of the parameters it belongs to.  LibTorch's own serialisation
// keys it by the address of the parameter, which means nothing in another process.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/ddp/tensor_file.h"

namespace ddprun::ddp {

class ShardedOptimizer;

// The state of one of LibTorch's optimizers whose parameters are all `module`'s:
//   <parameter>/momentum_buffer                                     SGD
//   <parameter>/step, exp_avg, exp_avg_sq, max_exp_avg_sq           Adam, AdamW
//   <parameter>/step, square_avg, momentum_buffer, grad_avg         RMSprop
//   <parameter>/step, sum                                           Adagrad
//   <first parameter>/n_iter, func_evals, t, prev_loss, d, H_diag, prev_flat_grad, and for each
//   step it remembers old_dirs.<i>, old_stps.<i>, ro.<i>            LBFGS
//   group<i>.lr                      the learning rate of each group of parameters, as a schedule
//                                    has left it; the other settings are the program's
// The tensors are the optimizer's own, not copies.  Fails with Errc::NotSupported for another kind
// of optimizer, with Errc::InvalidInput for a parameter that the module does not have.
Result<std::vector<NamedTensor>> optimizer_tensors(const torch::optim::Optimizer& optimizer,
                                                   const torch::nn::Module& module);

// Of the state of a sharded optimizer what this rank has, by the same names; the learning rates as
// well with `with_rates`.
Result<std::vector<NamedTensor>> own_optimizer_tensors(const ShardedOptimizer& optimizer,
                                                       const torch::nn::Module& module,
                                                       bool with_rates);

// The state of `parameters`, some of the optimizer's, by the names that they are given here;
// without the learning rates.  Fails with Errc::NotSupported as above.
Result<std::vector<NamedTensor>> parameter_states(const torch::optim::Optimizer& optimizer,
                                                  const std::vector<NamedTensor>& parameters);

// Makes what parameter_states() returned, under the same names, the optimizer's whole state.  Fails
// as restore_optimizer() does.
Result<void> restore_parameter_states(torch::optim::Optimizer& optimizer,
                                      const std::vector<NamedTensor>& parameters,
                                      const std::map<std::string, at::Tensor>& tensors);

// "Adam, amsgrad, 2 groups of parameters": what a state of it fits to.  "" for one of the
// program's own kind.
std::string describe_optimizer(const torch::optim::Optimizer& optimizer);

// The bytes that the tensors of such a state will take, from the optimizer's kind and settings.
std::uint64_t expected_bytes(const torch::optim::Optimizer& optimizer);

// Gives `optimizer`, made anew for `module`, the state that optimizer_tensors() returned for one of
// the same kind.  Fails as above, and with Errc::InvalidInput naming the tensor for a name, shape
// or dtype that does not fit; the optimizer may be half restored then.  Of a sharded optimizer each
// rank takes the state of its own parameters.
Result<void> restore_optimizer(torch::optim::Optimizer& optimizer, const torch::nn::Module& module,
                               const std::map<std::string, at::Tensor>& tensors);

}  // namespace ddprun::ddp
