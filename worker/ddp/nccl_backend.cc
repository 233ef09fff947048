// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/nccl_backend.h"

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/ddp/error.h"
#include "worker/ddp/forwarding_backend.h"

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

at::Device gpu(int number) {
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(number));
}

// Templates, so that a LibTorch without these functions compiles them.
template <class Backend>
void abort_of(Backend& backend) {
  if constexpr (requires { backend.abort(); }) backend.abort();
}
template <class Backend>
void shutdown_of(Backend& backend) {
  if constexpr (requires { backend.shutdown(); }) backend.shutdown();
}

// The communicators of a rank that has several GPUs; each collective goes to that of its tensor.
class BackendOfSeveralGpus : public shm::Forwarding {
 public:
  BackendOfSeveralGpus(std::vector<at::Device> gpus,
                       std::vector<c10::intrusive_ptr<c10d::Backend>> backends)
      : Forwarding(backends[0]), gpus_(std::move(gpus)), backends_(std::move(backends)) {}

  const std::string getBackendName() const override { return others_->getBackendName(); }

  // Virtual in newer LibTorch only, hence without "override".
  // NOLINTBEGIN(modernize-use-override)
  void abort() {
    for (const auto& backend : backends_) abort_of(*backend);
  }
  void shutdown() {
    for (const auto& backend : backends_) shutdown_of(*backend);
  }
  // NOLINTEND(modernize-use-override)

 protected:
  c10d::Backend& other(const at::Tensor& tensor) override {
    if (!tensor.defined()) return *others_;
    for (std::size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i] == tensor.device()) return *backends_[i];
    }
    std::string own;
    for (const at::Device& device : gpus_) own += (own.empty() ? "" : ", ") + device.str();
    throw DdpError("a tensor on " + tensor.device().str() + ", which is no device of this rank (" +
                   own + ")");
  }

 private:
  std::vector<at::Device> gpus_;
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends_;
};

const NcclInterface& load_plugin() {
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw DdpError("cannot load the NCCL plug-in: " + load_problem() +
                   "; if it is missing, it was not built: the line 'no NCCL plug-in' of the "
                   "configuration says why");
  }
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

std::vector<at::Device> gpus_of(const std::vector<at::Device>& asked, int local_rank, int gpu_count,
                                const std::optional<std::string>& visible) {
  const std::string seen = std::to_string(gpu_count) + " can be seen" +
                           (visible ? " (CUDA_VISIBLE_DEVICES='" + *visible + "')" : "");
  if (asked.empty()) {
    if (local_rank < gpu_count) return {gpu(local_rank)};
    throw DdpError("local rank " + std::to_string(local_rank) + " has no GPU: " + seen +
                   ", and each worker of a node needs one of its own");
  }
  std::vector<at::Device> gpus;
  for (const at::Device& device : asked) {
    if (!device.is_cuda() || !device.has_index()) {
      throw DdpError("the device " + device.str() +
                     " is no GPU with a number, such as cuda:0, which the backend 'nccl' needs");
    }
    if (device.index() >= gpu_count) {
      throw DdpError("the device " + device.str() + " is not there: " + seen);
    }
    if (std::find(gpus.begin(), gpus.end(), device) != gpus.end()) {
      throw DdpError("the device " + device.str() + " is asked for twice");
    }
    gpus.push_back(device);
  }
  return gpus;
}

std::vector<at::Device> gpus_for_each(int count, int local_rank, int local_world_size,
                                      int gpu_count) {
  std::vector<at::Device> gpus;
  if (count < 1 || gpu_count / count < local_world_size) return gpus;
  for (int i = 0; i < count; ++i) gpus.push_back(gpu(local_rank * count + i));
  return gpus;
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

void require_gpu(const std::optional<std::string>& visible) {
  const std::string problem = why_no_gpu();
  if (problem.empty()) return;
  throw DdpError("the backend 'nccl' needs a GPU: " + problem +
                 (visible ? " (CUDA_VISIBLE_DEVICES='" + *visible + "')" : "") +
                 "; 'gloo' carries CPU tensors");
}

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const NcclInterface& plugin,
                                                    const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int world_size,
                                                    const std::vector<at::Device>& gpus,
                                                    std::chrono::milliseconds timeout) {
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends(gpus.size());
  // The first comes last, since making one leaves its GPU as the current one.
  for (std::size_t i = gpus.size(); i-- > 0;) {
    auto own_store = c10::make_intrusive<c10d::PrefixStore>(std::to_string(i), store);
    backends[i] = c10::intrusive_ptr<c10d::Backend>::reclaim(
        plugin.make_backend(own_store.get(), rank, world_size, gpus[i].index(), timeout.count()));
  }
  if (backends.size() == 1) return backends[0];
  return c10::make_intrusive<BackendOfSeveralGpus>(gpus, std::move(backends));
}

}  // namespace ddprun::ddp
