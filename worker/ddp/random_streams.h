// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers that do not start again after a restart.  Each rank has a stream of its own: the
// same on all would drop the same activations everywhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "store/base/error.h"

namespace ddprun::ddp {

// The state of LibTorch's CPU generator, in bytes; and back.  Fails with Errc::Protocol for bytes
// that are no such state.
at::Tensor random_state();
Result<void> restore_random_state(const at::Tensor& state);

// Starts LibTorch's generators (the GPUs' too) on the stream of `rank` at `step`: where ranks have
// come or gone there is no state to go on from.
void start_random_stream(std::uint64_t seed, int rank, std::int64_t step);

// The seed that the generator was last given.
std::uint64_t random_seed();

}  // namespace ddprun::ddp
