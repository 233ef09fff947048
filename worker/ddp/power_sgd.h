// SPDX-License-Identifier: BSD-3-Clause
//
// PowerSGD (Vogels et al., 2019): the ranks send two thin matrices P and Q in the place of a matrix
// of gradients, which is then P times the transpose of Q.  As Python's powerSGD_hook, with equal
// results.
//
//   ddp::PowerSgdState state({.start_iteration = 100});
//   ddp::DDP<Net> model(net, group, {.comm_hook = state.hook()});
#pragma once

#include <cstdint>
#include <memory>

#include "worker/ddp/comm_hooks.h"
#include "worker/ddp/stateful.h"

namespace ddprun::ddp {

struct PowerSgdOptions {
  // How many columns P and Q have, at most: the more, the more exact, and the more is sent.
  std::int64_t matrix_approximation_rank = 1;

  // The steps before are reduced as without a hook.  At least 2 with use_error_feedback or
  // warm_start, which keep something for each bucket: the second step settles the buckets.  Without
  // both it may be 0.
  std::int64_t start_iteration = 1000;

  // Gradients for which P and Q are not this many times smaller are sent as they are.
  double min_compression_rate = 2;

  // Adds what the approximation has lost to the gradients of the next step.  Costs memory of the
  // size of the gradients.
  bool use_error_feedback = true;

  // Begins with the Q of the step before instead of a random one.
  bool warm_start = true;

  // Added to the norms by which columns are divided.  A column of zeros stays zero in any case.
  double orthogonalization_epsilon = 0;

  // Of the random Qs; the same on all ranks.
  std::uint32_t random_seed = 0;

  // Computes matrices of one shape together.  Costs a copy of them.
  bool batch_tensors_with_same_shape = false;
};

struct PowerSgdMemory;

// What the hook of one DistributedDataParallel keeps from step to step.  A run that goes on from a
// checkpoint needs it back (TrainingState::stateful), and the bucket_layout() that it belongs to:
//
//   TrainingState saved{.model = *net, .stateful = {{"power_sgd", &state}}, .buckets = &buckets};
//
// Then the run ends with the very bits of one that was not stopped, on as many ranks.  On another
// number of ranks each begins with the mean of what the approximation had lost on the ranks before.
// Without the state, a run begins with `start_iteration` uncompressed steps again.
//
// backward() throws DdpError where two have hooks of one state.
//
// Threads: used from the training thread, between two steps.
class PowerSgdState : public Stateful {
 public:
  // All ranks give the same options.  Throws DdpError for options out of range.
  explicit PowerSgdState(const PowerSgdOptions& options = {});
  ~PowerSgdState() override;

  // The hook, which shares the state with this object and may outlive it.
  CommHook hook() const;

  StateDict state_dict() const override;

  // What is loaded must be of the same `matrix_approximation_rank` and
  // `batch_tensors_with_same_shape`.  If it is of other buckets, the next backward() throws
  // DdpError.
  void load_state_dict(const StateDict& state) override;

 private:
  std::shared_ptr<PowerSgdMemory> memory_;
};

// The hook of a state that is in no checkpoint.
CommHook power_sgd_hook(const PowerSgdOptions& options = {});

}  // namespace ddprun::ddp
