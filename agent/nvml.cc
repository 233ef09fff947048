// SPDX-License-Identifier: BSD-3-Clause
#include "agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "agent/nvml_types.h"

namespace ddprun::agent {
namespace {

using nvml::Device;
using nvml::kNotKnown;
using nvml::kSuccess;
using nvml::Memory;
using nvml::ProcessInfo;
using nvml::Utilization;

constexpr unsigned kMostProcesses = 256;  // of one GPU
constexpr unsigned long long kMiB = 1 << 20;

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  bool is_ready = false;

  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
    return function != nullptr;
  }

  Library() {
    handle = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return;
    bool has_all = find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
                   find(device_count, "nvmlDeviceGetCount_v2") &&
                   find(device, "nvmlDeviceGetHandleByIndex_v2") &&
                   find(processes, "nvmlDeviceGetComputeRunningProcesses_v2") &&
                   find(memory, "nvmlDeviceGetMemoryInfo") &&
                   find(utilization, "nvmlDeviceGetUtilizationRates");
    is_ready = has_all && init() == kSuccess;
  }
  ~Library() {
    if (is_ready) shutdown();
    if (handle != nullptr) ::dlclose(handle);
  }
  Library(const Library&) = delete;
};

Nvml::Nvml() = default;
Nvml::~Nvml() = default;

std::map<pid_t, rendezvous::GpuVitals> Nvml::by_process() {
  if (!has_tried_) library_ = std::make_unique<Library>();
  has_tried_ = true;
  std::map<pid_t, rendezvous::GpuVitals> found;
  unsigned count = 0;
  if (!library_->is_ready || library_->device_count(&count) != kSuccess) return found;
  for (unsigned index = 0; index < count; ++index) {
    Device device = nullptr;
    Memory memory{};
    Utilization utilization{};
    std::vector<ProcessInfo> processes(kMostProcesses);
    unsigned process_count = kMostProcesses;
    bool is_known = library_->device(index, &device) == kSuccess &&
                    library_->memory(device, &memory) == kSuccess &&
                    library_->processes(device, &process_count, processes.data()) == kSuccess;
    if (!is_known) continue;
    // Some GPUs, those with MIG among them, do not say how busy they are.
    const bool says_how_busy = library_->utilization(device, &utilization) == kSuccess;
    processes.resize(std::min(process_count, kMostProcesses));
    for (const ProcessInfo& process : processes) {
      rendezvous::GpuVitals& gpu = found[static_cast<pid_t>(process.pid)];
      if (process.used_bytes != kNotKnown) gpu.used_mib += process.used_bytes / kMiB;
      gpu.total_mib += memory.total / kMiB;
      if (says_how_busy)
        gpu.busy_percent =
            std::max(gpu.busy_percent.value_or(0), static_cast<int>(utilization.gpu));
    }
  }
  return found;
}

}  // namespace ddprun::agent
