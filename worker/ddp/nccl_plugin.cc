// SPDX-License-Identifier: BSD-3-Clause
//
// The NCCL plug-in.  It must be built with the nccl.h of the torch wheel: c10d's options hold
// NCCL's ncclConfig_t, and with the header of another version everything links and memory is
// overwritten.
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <nccl.h>

#define USE_C10D_NCCL  // without it the headers below are empty
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#if __has_include(<torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>)
#define DDPRUN_HAS_NCCL2 1
#include <torch/csrc/distributed/c10d/nccl2/ProcessGroupNCCL.hpp>
#endif

#include "worker/ddp/nccl_interface.h"

namespace ddprun::ddp {
namespace {

#ifdef DDPRUN_HAS_NCCL2
using Backend = c10d::nccl2::ProcessGroupNCCL;  // what Python's "nccl" is where it exists
constexpr char kClassName[] = "c10d::nccl2::ProcessGroupNCCL";
#else
using Backend = c10d::ProcessGroupNCCL;
constexpr char kClassName[] = "c10d::ProcessGroupNCCL";
#endif

int loaded_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

int gpu_count() {
  return c10::cuda::device_count();
}

c10d::Backend* make_backend(c10d::Store* store, int rank, int world_size, int device,
                            std::int64_t timeout_ms) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::milliseconds(timeout_ms);
  auto shared_store = c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(store);
  auto backend =
      c10::make_intrusive<Backend>(std::move(shared_store), rank, world_size, std::move(options));
  // nccl2 connects here; the older class connects at the first collective.
  backend->setBoundDeviceId(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(device)));
  return backend.release();
}

constexpr NcclInterface kInterface = {
    .size = sizeof(NcclInterface),
    .class_name = kClassName,
    .compiled_version = NCCL_VERSION_CODE,
    .loaded_version = loaded_version,
    .gpu_count = gpu_count,
    .make_backend = make_backend,
};

}  // namespace
}  // namespace ddprun::ddp

extern "C" __attribute__((visibility("default"))) const ddprun::ddp::NcclInterface*
ddprun_nccl_interface() {
  return &ddprun::ddp::kInterface;
}
