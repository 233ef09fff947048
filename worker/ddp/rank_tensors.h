// SPDX-License-Identifier: BSD-3-Clause
//
// What each rank has of its own in a model (DataParallelOptions::ignored), and the optimizer's
// state of it, as the tensors of one file: "model.head.weight/1" and
// "optimizer.head.weight/momentum_buffer/1" are rank 1's.  They may differ in shape, and ranks may
// have others.
#pragma once

#include <string>
#include <vector>

#include "store/base/error.h"
#include "worker/ddp/named_tensor.h"
#include "worker/ddp/rank_agreement.h"
#include "worker/ddp/tensor_file.h"
#include "worker/ddp/training_state.h"

namespace ddprun::ddp {

// Which tensors of an optimizer's state are each rank's own; none of a ZeroRedundancyOptimizer,
// which keeps the parameters equal.
class OwnState {
 public:
  OwnState(const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

  // Of the names of optimizer_tensors().
  bool has(const std::string& name) const;

 private:
  std::vector<std::string> prefixes_;
  bool has_all_ = false;  // of LBFGS, whose state is that of all parameters together
};

// Throws the same DdpError on every rank when the models are not of the same names, or one that is
// not ignored is not of the same shape and dtype on all ranks: such a checkpoint could not be given
// back.  All ranks call it.
void check_same_models(const torch::nn::Module& module, const Ranks& ranks);

// This rank's tensors, by their names in the file.  All ranks call it; each throws the same
// DdpError when the optimizer's state of one cannot be known.
std::vector<NamedTensor> own_rank_tensors(const TrainingState& state, const Ranks& ranks);

// The same of all ranks, on rank 0; nothing on the others.
std::vector<NamedTensor> gather_rank_tensors(const TrainingState& state, const Ranks& ranks);

// Puts those of `rank` among `saved` into the parts of a checkpoint, in the place of rank 0's.  A
// rank that did not save takes rank 0's.
void take_rank_tensors(const TensorMap& saved, int rank, TensorMap& model, TensorMap& optimizer);

}  // namespace ddprun::ddp
