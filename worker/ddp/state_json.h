// SPDX-License-Identifier: BSD-3-Clause
//
// What of a training program's state is no tensor, as state.json (CHECKPOINTS.md).
#pragma once

#include <string>

#include "store/base/error.h"
#include "worker/ddp/training_state.h"

namespace ddprun::ddp {

std::string to_json(const TrainingState& state);

// Gives `state` what to_json() wrote, as far as both have it.  Fails with Errc::Protocol for text
// that it did not write, and with Errc::InvalidInput for a data position that the sampler's data
// set does not have.
Result<void> restore_json(const TrainingState& state, const std::string& text);

// Fails with Errc::InvalidInput where the optimizer is of another kind than the one whose state
// was saved with `text`, or has another number of groups of parameters.
Result<void> check_optimizer(const TrainingState& state, const std::string& text);

// The seed of the random numbers in it; 0 when it has none.
std::uint64_t seed_in(const std::string& text);

}  // namespace ddprun::ddp
