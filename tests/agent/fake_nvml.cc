// SPDX-License-Identifier: BSD-3-Clause
//
// NVIDIA's library for monitoring, of a machine with three GPUs.  On two this process computes; the
// third is partitioned (MIG), and of those NVML does not say how busy they are.
#include <unistd.h>

#include "agent/nvml_types.h"

using namespace ddprun::agent::nvml;

namespace {

int gpus[3];  // their addresses are the handles

int number_of(Device device) {
  return static_cast<int>(static_cast<int*>(device) - gpus);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return kSuccess;
}
int nvmlShutdown() {
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 3;
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = &gpus[index];
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(Device /*device*/, Memory* memory) {
  *memory = {.total = 80ULL << 30, .free = 0, .used = 0};
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(Device device, Utilization* utilization) {
  if (number_of(device) == 2) return 3;  // not supported
  *utilization = {.gpu = number_of(device) == 0 ? 30U : 97U, .memory = 0};
  return kSuccess;
}
// Of the second GPU the driver does not say how much it has.
int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, ProcessInfo* infos) {
  if (*count < 2) return 7;  // too small
  if (number_of(device) == 2) {
    *count = 1;
    infos[0] = {.pid = 2, .used_bytes = 5 << 20, .gpu_instance = 0, .compute_instance = 0};
    return kSuccess;
  }
  *count = 2;
  infos[0] = {.pid = static_cast<unsigned>(::getpid()),
              .used_bytes = number_of(device) == 0 ? 3ULL << 30 : kNotKnown,
              .gpu_instance = 0,
              .compute_instance = 0};
  infos[1] = {.pid = 1, .used_bytes = 1 << 20, .gpu_instance = 0, .compute_instance = 0};
  return kSuccess;
}
}
