// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/nccl_backend.h"

#include <dlfcn.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/error.h"

namespace ddprun::ddp {
namespace {

constexpr char kLibrary[] = "libddprun_nccl.so";
constexpr char kDriver[] = "libcuda.so.1";

std::string in_words(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string load_problem() {
  const char* words = ::dlerror();
  return words ? words : "the loader does not say why";
}

// A function of the driver's library, whose header is not needed for two calls.
template <class... Args>
std::optional<int> call_driver(void* driver, const char* name, Args... args) {
  auto* function = reinterpret_cast<int (*)(Args...)>(::dlsym(driver, name));
  if (function == nullptr) return std::nullopt;
  return function(args...);
}

const NcclInterface& load_plugin() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw DdpError("cannot load the NCCL plug-in: " + load_problem());
  auto* entry = reinterpret_cast<const NcclInterface* (*)()>(::dlsym(library, kNcclEntry));
  if (entry == nullptr) {
    throw DdpError(std::string(kLibrary) + " is not the NCCL plug-in: " + load_problem());
  }
  const NcclInterface& plugin = *entry();
  if (plugin.size != sizeof(NcclInterface)) {
    throw DdpError(std::string(kLibrary) +
                   " belongs to another build of ddprun: install both anew");
  }
  std::string problem = nccl_version_problem(plugin.compiled_version, plugin.loaded_version());
  if (!problem.empty()) throw DdpError(problem);
  return plugin;
}

}  // namespace

std::string nccl_version_problem(int compiled, int loaded) {
  if (compiled / 100 == loaded / 100) return "";
  return "the NCCL plug-in was built for NCCL " + in_words(compiled) + ", and NCCL " +
         in_words(loaded) +
         " is loaded, which lays its structures out otherwise: use the torch that ddprun was built "
         "with, and keep other copies of libnccl.so.2 out of LD_LIBRARY_PATH and LD_PRELOAD";
}

int gpu_of(int local_rank, int gpu_count, const std::optional<std::string>& visible) {
  if (local_rank < gpu_count) return local_rank;
  throw DdpError("local rank " + std::to_string(local_rank) +
                 " has no GPU: " + std::to_string(gpu_count) + " can be seen" +
                 (visible ? " (CUDA_VISIBLE_DEVICES='" + *visible + "')" : "") +
                 ", and each worker of a node needs one of its own");
}

std::string why_no_gpu() {
  void* driver = ::dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);  // stays: CUDA uses it afterwards
  if (driver == nullptr) return "NVIDIA's driver is not there (" + load_problem() + ")";
  int count = 0;
  std::optional<int> status = call_driver(driver, "cuInit", 0U);
  if (status == 0) status = call_driver(driver, "cuDeviceGetCount", &count);
  if (!status) return std::string(kDriver) + " is not NVIDIA's driver";
  if (*status != 0) return "NVIDIA's driver answers with error " + std::to_string(*status);
  return count > 0 ? "" : "NVIDIA's driver sees none";
}

const NcclInterface& load_nccl() {
  static const NcclInterface& plugin = load_plugin();
  return plugin;
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const worker::WorkerEnv& env,
                                                    const std::optional<std::string>& visible,
                                                    std::chrono::milliseconds timeout) {
  std::string problem = why_no_gpu();
  if (!problem.empty()) {
    throw DdpError("the backend 'nccl' needs a GPU: " + problem +
                   (visible ? " (CUDA_VISIBLE_DEVICES='" + *visible + "')" : "") +
                   "; 'gloo' carries CPU tensors");
  }
  const NcclInterface& plugin = load_nccl();
  int gpu = gpu_of(env.local_rank, plugin.gpu_count(), visible);
  return c10::intrusive_ptr<c10d::Backend>::reclaim(
      plugin.make_backend(store.get(), env.rank, env.world_size, gpu, timeout.count()));
}

}  // namespace ddprun::ddp
