// SPDX-License-Identifier: BSD-3-Clause
#include "cli/config/numa.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::cli;

namespace {

// Two packages of two NUMA nodes each; a node has 4 cores of two threads (CPU n and n + 16), and
// two cores share a cache.  GPU 0..3: two on node 0, one on node 1, one on node 3.
Topology two_packages() {
  Topology topology;
  for (int cpu = 0; cpu < 32; ++cpu) {
    int core = cpu % 16;
    topology.cpus[cpu] = {
        .node = core / 4, .socket = core / 8, .core = core, .cache = core / 2 * 2};
  }
  for (int node : {0, 0, 1, 3}) topology.gpus.push_back({.pci = "0000:01:00.0", .node = node});
  return topology;
}

std::string on(const Topology& topology, NumaMode mode, int gpu) {
  auto cpus = cpus_near_gpu(topology, mode, gpu);
  if (!cpus) return to_string(cpus.error());
  std::string text;
  for (int cpu : *cpus) text += (text.empty() ? "" : " ") + std::to_string(cpu);
  return text;
}

}  // namespace

TEST_SUITE("cli/config/numa") {
  TEST_CASE("node: all CPUs of the GPU's NUMA node") {
    CHECK(on(two_packages(), NumaMode::Node, 0) == "0 1 2 3 16 17 18 19");
    CHECK(on(two_packages(), NumaMode::Node, 3) == "12 13 14 15 28 29 30 31");
  }

  TEST_CASE("socket: all CPUs of the package") {
    CHECK(on(two_packages(), NumaMode::Socket, 2) == "0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23");
  }

  TEST_CASE("exclusive: the node's cores shared out among its GPUs, whole cores only") {
    CHECK(on(two_packages(), NumaMode::Exclusive, 0) == "0 1 16 17");
    CHECK(on(two_packages(), NumaMode::Exclusive, 1) == "2 3 18 19");
    CHECK(on(two_packages(), NumaMode::Exclusive, 2) == "4 5 6 7 20 21 22 23");
    Topology odd = two_packages();
    odd.gpus[2].node = 0;  // 4 cores for 3 GPUs: the first gets the core left over
    CHECK(on(odd, NumaMode::Exclusive, 0) == "0 1 16 17");
    CHECK(on(odd, NumaMode::Exclusive, 1) == "2 18");
    CHECK(on(odd, NumaMode::Exclusive, 2) == "3 19");
    for (int i = 0; i < 2; ++i) odd.gpus.push_back({.pci = "0000:02:00.0", .node = 0});
    CHECK(on(odd, NumaMode::Exclusive, 0) == "NUMA node 0 has 4 cores for 5 GPUs");
  }

  TEST_CASE("core-complex: a cache each, the one with most CPUs first, in turn") {
    CHECK(on(two_packages(), NumaMode::CoreComplex, 0) == "0 1 16 17");
    CHECK(on(two_packages(), NumaMode::CoreComplex, 1) == "2 3 18 19");
    Topology limited = two_packages();
    limited.cpus.erase(1);  // not allowed to this process
    CHECK(on(limited, NumaMode::CoreComplex, 0) == "2 3 18 19");
    CHECK(on(limited, NumaMode::CoreComplex, 1) == "0 16 17");
    limited.gpus[2].node = 0;  // a third GPU: around again
    CHECK(on(limited, NumaMode::CoreComplex, 2) == "2 3 18 19");
  }

  TEST_CASE("only CPUs that the process may run on; none is an error") {
    Topology limited = two_packages();
    std::erase_if(limited.cpus, [](const auto& cpu) { return cpu.first != 5 && cpu.first != 20; });
    CHECK(on(limited, NumaMode::Node, 2) == "5 20");
    CHECK(on(limited, NumaMode::Exclusive, 2) == "5 20");
    CHECK(on(limited, NumaMode::Node, 0) ==
          "this process may run on no CPU of NUMA node 0, where GPU 0 is");
  }

  TEST_CASE("a local rank without a GPU, and a GPU without a node, are errors") {
    CHECK(on(two_packages(), NumaMode::Node, 4) ==
          "local rank 4 has no GPU, of which 4 are visible");
    Topology topology = two_packages();
    topology.gpus[1] = Gpu{};
    CHECK(on(topology, NumaMode::Node, 1) ==
          "the NUMA node of GPU 1 is not known (no PCI address)");
  }

  TEST_CASE("the kernel's lists of CPUs") {
    CHECK(parse_cpu_list("0-2,4,6-7\n") == std::vector<int>{0, 1, 2, 4, 6, 7});
    CHECK(parse_cpu_list("5") == std::vector<int>{5});
    CHECK(parse_cpu_list("\n").empty());
  }
}
