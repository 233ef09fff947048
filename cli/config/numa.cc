// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/numa.h"

#include <algorithm>
#include <charconv>

namespace ddprun::cli {
namespace {

Error failure(std::string text) {
  return {Errc::InvalidInput, std::move(text)};
}

// The CPUs of `node`, by the group that `key` puts them in.
std::map<int, std::vector<int>> groups_of(const Topology& topology, int node, int Cpu::*key) {
  std::map<int, std::vector<int>> groups;
  for (const auto& [number, cpu] : topology.cpus) {
    if (cpu.node == node) groups[cpu.*key].push_back(number);
  }
  return groups;
}

std::vector<int> all_where(const Topology& topology, int Cpu::*key, int value) {
  std::vector<int> numbers;
  for (const auto& [number, cpu] : topology.cpus) {
    if (cpu.*key == value) numbers.push_back(number);
  }
  return numbers;
}

// How many GPUs share `gpu`'s node, and which of them it is.
struct Place {
  std::size_t index = 0;
  std::size_t count = 0;
};

Place place_on_node(const Topology& topology, std::size_t gpu) {
  Place place;
  for (std::size_t other = 0; other < topology.gpus.size(); ++other) {
    if (topology.gpus[other].node != topology.gpus[gpu].node) continue;
    if (other < gpu) ++place.index;
    ++place.count;
  }
  return place;
}

Result<std::vector<int>> share_of_cores(const Topology& topology, int node, Place place) {
  std::map<int, std::vector<int>> cores = groups_of(topology, node, &Cpu::core);
  std::size_t each = cores.size() / place.count;
  std::size_t left_over = cores.size() % place.count;
  if (each == 0) {
    return failure("NUMA node " + std::to_string(node) + " has " + std::to_string(cores.size()) +
                   " cores for " + std::to_string(place.count) + " GPUs");
  }
  std::size_t begin = place.index * each + std::min(place.index, left_over);
  std::size_t end = begin + each + (place.index < left_over ? 1 : 0);
  std::vector<int> cpus;
  std::size_t position = 0;
  for (const auto& [core, members] : cores) {
    if (position >= begin && position < end)
      cpus.insert(cpus.end(), members.begin(), members.end());
    ++position;
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

std::vector<int> one_cache(const Topology& topology, int node, Place place) {
  std::vector<std::vector<int>> complexes;
  for (auto& [cache, members] : groups_of(topology, node, &Cpu::cache)) {
    complexes.push_back(members);
  }
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return complexes[place.index % complexes.size()];
}

}  // namespace

std::optional<NumaMode> numa_mode(std::string_view name) {
  if (name == "node") return NumaMode::Node;
  if (name == "socket") return NumaMode::Socket;
  if (name == "exclusive") return NumaMode::Exclusive;
  if (name == "core-complex") return NumaMode::CoreComplex;
  return std::nullopt;
}

Result<std::vector<int>> cpus_near_gpu(const Topology& topology, NumaMode mode, int gpu) {
  auto index = static_cast<std::size_t>(gpu);
  if (index >= topology.gpus.size()) {
    return failure("local rank " + std::to_string(gpu) + " has no GPU, of which " +
                   std::to_string(topology.gpus.size()) + " are visible");
  }
  if (!topology.gpus[index].node) {
    return failure(
        "the NUMA node of GPU " + std::to_string(gpu) + " is not known (" +
        (topology.gpus[index].pci.empty() ? "no PCI address" : topology.gpus[index].pci) + ")");
  }
  int node = *topology.gpus[index].node;
  std::vector<int> of_node = all_where(topology, &Cpu::node, node);
  if (of_node.empty()) {
    return failure("this process may run on no CPU of NUMA node " + std::to_string(node) +
                   ", where GPU " + std::to_string(gpu) + " is");
  }
  Place place = place_on_node(topology, index);
  switch (mode) {
    case NumaMode::Node:
      return of_node;
    case NumaMode::Socket:
      return all_where(topology, &Cpu::socket, topology.cpus.at(of_node.front()).socket);
    case NumaMode::Exclusive:
      return share_of_cores(topology, node, place);
    case NumaMode::CoreComplex:
      return one_cache(topology, node, place);
  }
  return of_node;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int first = 0;
    auto [after, error] = std::from_chars(at, end, first);
    if (error != std::errc{}) {
      ++at;
      continue;
    }
    int last = first;
    if (after < end && *after == '-') after = std::from_chars(after + 1, end, last).ptr;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
    at = after;
  }
  return numbers;
}

}  // namespace ddprun::cli
