// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/random_streams.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "worker/data/sampler.h"

namespace ddprun::ddp {

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

Result<void> restore_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
    return {};
  } catch (const std::exception&) {  // another size, or no state of this generator
    return Error{Errc::Protocol, "its random numbers are of another torch"};
  }
}

void start_random_stream(std::uint64_t seed, int rank, std::int64_t step) {
  at::manual_seed(stream_seed(seed, rank, step));
}

std::uint64_t random_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(generator.mutex());
  return generator.current_seed();
}

}  // namespace ddprun::ddp
