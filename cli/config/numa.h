// SPDX-License-Identifier: BSD-3-Clause
//
// On which CPUs a worker runs so that it is near its GPU: the modes of torch/numa/binding.py
// (torch 2.15), decided from a picture of the machine.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"

namespace ddprun::cli {

// A CPU as Linux numbers them (a hardware thread).
struct Cpu {
  int node = 0;    // its NUMA node
  int socket = 0;  // its package
  int core = 0;    // the lowest CPU of its core, whether or not we may run on that one
  int cache = 0;   // the lowest CPU that shares its last-level cache, likewise
};

struct Gpu {
  std::string pci;          // "0000:3b:00.0"; empty where it is not known (a MIG instance, say)
  std::optional<int> node;  // its NUMA node
};

struct Topology {
  std::map<int, Cpu> cpus;  // those that this process may run on, by number
  std::vector<Gpu> gpus;    // those visible to it, in CUDA's order
};

enum class NumaMode { Node, Socket, Exclusive, CoreComplex };

// "node", "socket", "exclusive", "core-complex".
std::optional<NumaMode> numa_mode(std::string_view name);

// The CPUs for the worker whose GPU is number `gpu`, ascending, at least one:
//   Node         all of the GPU's NUMA node
//   Socket       all of the nodes in that node's package
//   Exclusive    the node's cores divided among its GPUs; the first ones get what is left over
//   CoreComplex  one last-level cache's, the largest first, in turn among the node's GPUs
// Fails with Errc::InvalidInput and a sentence: no such GPU, its node is not known, too few cores.
Result<std::vector<int>> cpus_near_gpu(const Topology& topology, NumaMode mode, int gpu);

// "0-2,4" into {0, 1, 2, 4}, the form of /sys; what is no number is left out.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace ddprun::cli
