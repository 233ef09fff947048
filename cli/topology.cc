// SPDX-License-Identifier: BSD-3-Clause
#include "cli/topology.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "cli/options/parse.h"
#include "store/base/folder.h"
#include "store/base/number.h"
#include "worker/process/text_file.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

Error unreadable(const std::string& path) {
  return {Errc::InvalidInput, "the topology of this machine is not known: cannot read " + path};
}

// The names in `folder` that begin with `prefix` and go on with a number, by that number.
std::map<int, std::string> numbered(const std::string& folder, std::string_view prefix) {
  std::map<int, std::string> found;
  std::error_code error;
  for (const auto& entry : entries_of(folder, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (auto number = leading_number<int>(std::string_view(name).substr(prefix.size())))
      found[*number] = entry.path().string();
  }
  return found;
}

struct InstalledGpu {
  std::string pci;
  std::string uuid;  // empty if the driver does not give it
};

std::vector<InstalledGpu> installed_gpus(const std::string& root) {
  std::vector<InstalledGpu> gpus;
  std::error_code error;
  for (const auto& entry : entries_of(root + "/proc/driver/nvidia/gpus", error)) {
    InstalledGpu gpu{.pci = entry.path().filename().string()};
    std::string text = process::text_of_file(entry.path().string() + "/information").value_or("");
    if (auto begin = text.find("GPU-"); begin != std::string::npos)
      gpu.uuid = text.substr(begin, text.find_first_of(" \t\r\n", begin) - begin);
    gpus.push_back(std::move(gpu));
  }
  std::sort(gpus.begin(), gpus.end(), [](const auto& a, const auto& b) { return a.pci < b.pci; });
  return gpus;
}

// The driver writes 0000:3B:00.0 in some versions; /sys has lower case.
Gpu with_node(const std::string& root, std::string pci) {
  std::transform(pci.begin(), pci.end(), pci.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  Gpu gpu{.pci = pci};
  if (auto text = process::text_of_file(root + "/sys/bus/pci/devices/" + pci + "/numa_node")) {
    // -1 where there is only one node.
    if (auto node = leading_number<int>(*text)) gpu.node = std::max(0, *node);
  }
  return gpu;
}

// Which of `installed` the entry of CUDA_VISIBLE_DEVICES names; an empty address for a MIG instance
// and for a UUID that the driver does not give.  nullopt: no device.
std::optional<std::string> pci_of(const std::vector<InstalledGpu>& installed,
                                  const std::string& entry) {
  if (entry.starts_with("MIG-")) return "";
  if (entry.starts_with("GPU-")) {
    bool are_told = false;
    for (const InstalledGpu& gpu : installed) {
      if (gpu.uuid.starts_with(entry)) return gpu.pci;
      are_told = are_told || !gpu.uuid.empty();
    }
    return are_told ? std::nullopt : std::optional<std::string>("");
  }
  bool is_number = !entry.empty() && entry.find_first_not_of("0123456789") == std::string::npos;
  auto number = is_number ? leading_number<int>(entry) : std::nullopt;
  if (!number || static_cast<std::size_t>(*number) >= installed.size()) return std::nullopt;
  return installed[static_cast<std::size_t>(*number)].pci;
}

// The last-level cache's CPUs as the kernel lists them; the CPU alone if it lists none.
std::vector<int> sharing_last_cache(const std::string& cpu_folder, int number) {
  int highest = -1;
  std::vector<int> cpus = {number};
  for (const auto& [index, folder] : numbered(cpu_folder + "/cache", "index")) {
    std::string type = process::text_of_file(folder + "/type").value_or("");
    if (!type.starts_with("Unified") && !type.starts_with("Data")) continue;
    auto level = leading_number<int>(process::text_of_file(folder + "/level").value_or(""));
    auto shared = parse_cpu_list(process::text_of_file(folder + "/shared_cpu_list").value_or(""));
    if (!level || *level <= highest || shared.empty()) continue;
    highest = *level;
    cpus = shared;
  }
  return cpus;
}

Result<Cpu> read_cpu(const std::string& root, int number) {
  std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(number);
  std::string package = folder + "/topology/physical_package_id";
  std::string siblings = folder + "/topology/thread_siblings_list";
  auto socket = leading_number<int>(process::text_of_file(package).value_or(""));
  if (!socket) return unreadable(package);
  std::vector<int> core = parse_cpu_list(process::text_of_file(siblings).value_or(""));
  if (core.empty()) return unreadable(siblings);
  std::vector<int> cache = sharing_last_cache(folder, number);
  return Cpu{.socket = *socket,
             .core = *std::min_element(core.begin(), core.end()),
             .cache = *std::min_element(cache.begin(), cache.end())};
}

}  // namespace

std::vector<Gpu> visible_gpus(const std::string& root, const std::optional<std::string>& visible) {
  std::vector<InstalledGpu> installed = installed_gpus(root);
  std::vector<Gpu> gpus;
  if (!visible) {
    for (const InstalledGpu& gpu : installed) gpus.push_back(with_node(root, gpu.pci));
    return gpus;
  }
  if (installed.empty()) return {};
  for (const std::string& entry : split_commas(*visible)) {
    std::optional<std::string> pci = pci_of(installed, entry);
    if (!pci) break;
    gpus.push_back(pci->empty() ? Gpu{} : with_node(root, *pci));
  }
  return gpus;
}

Result<Topology> read_topology(const std::string& root, const std::vector<int>& allowed,
                               const std::optional<std::string>& visible) {
  Topology topology{.gpus = visible_gpus(root, visible)};
  if (topology.gpus.empty()) {
    return Error{Errc::InvalidInput, "no GPU of NVIDIA's driver is visible (" + root +
                                         "/proc/driver/nvidia/gpus), and CPUs are chosen by it"};
  }
  for (int number : allowed) {
    Result<Cpu> cpu = read_cpu(root, number);
    if (!cpu) return cpu.error();
    topology.cpus[number] = *cpu;
  }
  std::string folder = root + "/sys/devices/system/node";
  std::map<int, std::string> nodes = numbered(folder, "node");
  if (nodes.empty()) return unreadable(folder + "/node0/cpulist");
  for (const auto& [node, path] : nodes) {
    for (int number : parse_cpu_list(process::text_of_file(path + "/cpulist").value_or(""))) {
      if (auto cpu = topology.cpus.find(number); cpu != topology.cpus.end())
        cpu->second.node = node;
    }
  }
  return topology;
}

}  // namespace ddprun::cli
