// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/random_streams.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <algorithm>
#include <mutex>

#include "worker/data/sampler.h"

namespace ddprun::ddp {

std::vector<at::Device> generator_devices(const torch::nn::Module& module) {
  std::vector<at::Device> devices{at::kCPU};
  for (const at::Tensor& parameter : module.parameters()) {
    const at::Device device = parameter.device();
    if (!device.is_cuda()) continue;
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  }
  return devices;
}

std::vector<at::Tensor> random_states(const std::vector<at::Device>& devices) {
  std::vector<at::Tensor> states;
  for (const at::Device& device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    std::lock_guard lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return states;
}

std::string random_name(std::size_t place, int rank) {
  return (place == 0 ? "cpu" : "gpu" + std::to_string(place - 1)) + "/" + std::to_string(rank);
}

Result<void> restore_random_states(const std::map<std::string, at::Tensor>& saved, int rank,
                                   const std::vector<at::Device>& devices) {
  for (std::size_t place = 0; place < devices.size(); ++place) {
    auto found = saved.find(random_name(place, rank));
    if (found == saved.end()) continue;
    at::Generator generator = at::globalContext().defaultGenerator(devices[place]);
    std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(found->second.clone());
    } catch (const std::exception&) {  // another size, or no state of this generator
      return Error{Errc::Protocol, "its random numbers are of another torch"};
    }
  }
  return {};
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
