// SPDX-License-Identifier: BSD-3-Clause
#include "cli/topology.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::cli;

namespace {

// A /sys and a /proc of our own: two nodes of two cores with two threads each, a cache a node, and
// three GPUs.
struct FakeTree {
  test::TempDir folder;
  const std::string& root = folder.path();

  FakeTree() {
    for (int cpu = 0; cpu < 8; ++cpu) {
      std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
      int node = cpu % 4 / 2;
      write(path + "/topology/physical_package_id", std::to_string(node));
      int core = cpu % 4;
      write(path + "/topology/thread_siblings_list",
            std::to_string(core) + "," + std::to_string(core + 4));
      cache(path + "/cache/index0", "Instruction", 9, "0-7");
      cache(path + "/cache/index1", "Data", 1, std::to_string(cpu));
      cache(path + "/cache/index3", "Unified", 3, node == 0 ? "0-1,4-5" : "2-3,6-7");
    }
    write("/sys/devices/system/node/node0/cpulist", "0-1,4-5\n");
    write("/sys/devices/system/node/node1/cpulist", "2-3,6-7\n");
    gpu("0000:3B:00.0", "GPU-aaaa-1", "0");
    gpu("0000:af:00.0", "GPU-bbbb-2", "1");
    gpu("0000:d8:00.0", "GPU-cccc-3", "-1");
  }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << '\n';
  }
  void cache(const std::string& path, const char* type, int level, const std::string& cpus) const {
    write(path + "/type", type);
    write(path + "/level", std::to_string(level));
    write(path + "/shared_cpu_list", cpus);
  }
  void gpu(std::string pci, const std::string& uuid, const std::string& node) const {
    write("/proc/driver/nvidia/gpus/" + pci + "/information",
          "Model: \t\t Test\nGPU UUID: \t " + uuid + "\nVideo BIOS: \t ?");
    for (char& c : pci) c = static_cast<char>(std::tolower(c));
    write("/sys/bus/pci/devices/" + pci + "/numa_node", node);
  }

  std::string addresses(const std::optional<std::string>& visible) const {
    std::string text;
    for (const Gpu& gpu : visible_gpus(root, visible))
      text += (text.empty() ? "" : " ") + (gpu.pci.empty() ? "?" : gpu.pci);
    return text;
  }
};

}  // namespace

TEST_SUITE("cli/topology") {
  TEST_CASE_FIXTURE(FakeTree, "CPUs with their node, package, core and last-level cache") {
    auto topology = read_topology(root, {0, 3, 6}, std::nullopt);
    REQUIRE(topology.has_value());
    REQUIRE(topology->cpus.size() == 3);
    const Cpu& cpu = topology->cpus.at(6);
    CHECK(cpu.node == 1);
    CHECK(cpu.socket == 1);
    CHECK(cpu.core == 2);
    CHECK(cpu.cache == 2);
    CHECK(topology->cpus.at(0).cache == 0);
    REQUIRE(topology->gpus.size() == 3);
    CHECK(topology->gpus[0].node == 0);
    CHECK(topology->gpus[1].node == 1);
    CHECK(topology->gpus[2].node == 0);  // -1: the machine has one node
  }

  TEST_CASE_FIXTURE(FakeTree, "CUDA_VISIBLE_DEVICES narrows and orders the GPUs") {
    CHECK(addresses(std::nullopt) == "0000:3b:00.0 0000:af:00.0 0000:d8:00.0");
    CHECK(addresses("2,0") == "0000:d8:00.0 0000:3b:00.0");
    CHECK(addresses("1,7,0") == "0000:af:00.0");
    CHECK(addresses("GPU-cccc,GPU-none,0") == "0000:d8:00.0");
    CHECK(addresses("MIG-1,0") == "? 0000:3b:00.0");
    CHECK(addresses("") == "");
  }

  TEST_CASE("what is not known of a machine is named") {
    test::TempDir empty;
    auto topology = read_topology(empty.path(), {0}, std::nullopt);
    REQUIRE(topology.has_error());
    CHECK(to_string(topology.error()) ==
          "no GPU of NVIDIA's driver is visible (" + empty.path() +
              "/proc/driver/nvidia/gpus), and CPUs are chosen by it");
    FakeTree tree;
    std::filesystem::remove_all(tree.root + "/sys/devices/system/node");
    topology = read_topology(tree.root, {0}, std::nullopt);
    REQUIRE(topology.has_error());
    CHECK(to_string(topology.error()) == "the topology of this machine is not known: cannot read " +
                                             tree.root + "/sys/devices/system/node/node0/cpulist");
    topology = read_topology(tree.root, {0, 99}, std::nullopt);
    REQUIRE(topology.has_error());
    CHECK(to_string(topology.error()).ends_with("/cpu/cpu99/topology/physical_package_id"));
  }
}
