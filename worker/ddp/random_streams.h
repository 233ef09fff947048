// SPDX-License-Identifier: BSD-3-Clause
//
// Random numbers that do not start again after a restart.  Each rank has a stream of its own: the
// same on all would drop the same activations everywhere.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp {

// The devices whose generators a training program of `module` uses: the CPU, and then the GPUs that
// its parameters are on, in their order.
std::vector<at::Device> generator_devices(const torch::nn::Module& module);

// The state of LibTorch's generator for each device, in bytes, on the CPU.
std::vector<at::Tensor> random_states(const std::vector<at::Device>& devices);

// "cpu/1", "gpu0/1": the state of rank 1's generator for the device at `place` in its list, in a
// checkpoint.
std::string random_name(std::size_t place, int rank);

// Puts the states that `saved` has for `rank` into the generators for `devices`; what it has none
// for stays as it is.  Fails with Errc::Protocol for bytes that are no such state.
Result<void> restore_random_states(const std::map<std::string, at::Tensor>& saved, int rank,
                                   const std::vector<at::Device>& devices);

// Starts LibTorch's generators (the GPUs' too) on the stream of `rank` at `step`: where ranks have
// come or gone there is no state to go on from.
void start_random_stream(std::uint64_t seed, int rank, std::int64_t step);

// The seed that the generator was last given.
std::uint64_t random_seed();

}  // namespace ddprun::ddp
