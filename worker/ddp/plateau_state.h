// SPDX-License-Identifier: BSD-3-Clause
//
// Where a ReduceLROnPlateauScheduler stands.  LibTorch keeps it private and has no way to save it.
#pragma once

#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

namespace ddprun::ddp {

// References into `scheduler`: what changes as it steps.
struct PlateauState {
  float& best;
  int& cooldown_counter;
  int& last_epoch;
  int& num_bad_epochs;
};
PlateauState state_of(torch::optim::ReduceLROnPlateauScheduler& scheduler);

}  // namespace ddprun::ddp
