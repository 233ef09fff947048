// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/placement_options.h"

#include "cli/options/parse.h"

namespace ddprun::cli {
namespace {

// Torchrun's rule: the list comes from a HIP_VISIBLE_DEVICES that is not empty, else from
// CUDA_VISIBLE_DEVICES where that is set at all; without either the GPU's number is the local rank.
Result<void> show_one_gpu(ConfigBuilder& builder) {
  agent::WorkerGroupConfig& workers = builder.workers();
  std::string hip = builder.inherited("HIP_VISIBLE_DEVICES");
  const char* list_name = hip.empty() ? "CUDA_VISIBLE_DEVICES" : "HIP_VISIBLE_DEVICES";
  bool has_list = workers.environment.contains(list_name);
  std::string list = builder.inherited(list_name);
  std::vector<std::string> devices = split_commas(list);
  for (int local_rank = 0; local_rank < workers.local_world_size; ++local_rank) {
    auto index = static_cast<std::size_t>(local_rank);
    if (has_list && index >= devices.size()) {
      return builder.preflight_failure("--virtual-local-rank: " + std::string(list_name) + "='" +
                                       list + "' has " + std::to_string(devices.size()) +
                                       " entries for " + std::to_string(workers.local_world_size) +
                                       " workers");
    }
    std::string device = has_list ? devices[index] : std::to_string(local_rank);
    auto& environment = workers.placements[index].environment;
    environment["LOCAL_RANK"] = "0";
    environment["CUDA_VISIBLE_DEVICES"] = device;
    if (!hip.empty()) environment["HIP_VISIBLE_DEVICES"] = device;
  }
  return {};
}

Result<void> bind_to_cpus(ConfigBuilder& builder, const OptionValue& option) {
  std::optional<NumaMode> mode = numa_mode(option.text);
  if (!mode) return invalid_value(option, "node, socket, exclusive or core-complex");
  std::string context = option.origin + "=" + option.text + ": ";
  Result<Topology> topology = builder.machine.topology();
  if (!topology) return builder.preflight_failure(context + to_string(topology.error()));
  int local_rank = 0;
  for (agent::WorkerPlacement& placement : builder.workers().placements) {
    Result<std::vector<int>> cpus = cpus_near_gpu(*topology, *mode, local_rank++);
    if (!cpus) return builder.preflight_failure(context + to_string(cpus.error()));
    placement.cpus = std::move(*cpus);
  }
  return {};
}

}  // namespace

Result<void> add_placement(ConfigBuilder& builder) {
  const OptionValue* binding = builder.given("numa-binding");
  bool is_virtual = builder.given("virtual-local-rank") != nullptr;
  builder.workers().placements.resize(static_cast<std::size_t>(builder.workers().local_world_size));
  if (is_virtual) {
    Result<void> shown = show_one_gpu(builder);
    if (!shown) return shown.error();
  }
  if (binding == nullptr) return {};
  return bind_to_cpus(builder, *binding);
}

}  // namespace ddprun::cli
