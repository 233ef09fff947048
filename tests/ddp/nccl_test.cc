// SPDX-License-Identifier: BSD-3-Clause
//
// The NCCL plug-in as far as it goes without a GPU: it is built, loads, and says what is missing.
// gpu_test.py is the rest.
#include <fstream>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "tests/ddp/ranks.h"
#include "worker/ddp/group_connections.h"
#include "worker/ddp/nccl_backend.h"

namespace {

using namespace ddprun::ddp;
using namespace ddprun::ddp::test;

// Whether a library of that name is loaded in this process.
bool is_loaded(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(library) != std::string::npos) return true;
  }
  return false;
}

at::Device gpu(int number) {
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(number));
}

// A tensor that says it is on `device` and has no memory there.
at::Tensor tensor_on(at::Device device) {
  return at::detail::make_tensor<c10::TensorImpl>(c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                  caffe2::TypeMeta::Make<float>(), device);
}

// What the plug-in makes, as far as it can be asked without a GPU: for which device, and what it is
// called with.
struct FakeNccl : c10d::Backend {
  FakeNccl(int rank, int world_size, int its_device)
      : Backend(rank, world_size), device(its_device) {}
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    calls.push_back("allreduce " + tensors[0].device().str());
    return {};
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions&) override {
    calls.push_back("broadcast " + tensors[0].device().str());
    return {};
  }
  // Virtual in newer LibTorch only.
  void abort() { calls.emplace_back("abort"); }        // NOLINT(modernize-use-override)
  void shutdown() { calls.emplace_back("shutdown"); }  // NOLINT(modernize-use-override)

  int device;
  std::vector<std::string> calls;
};

std::vector<FakeNccl*> made;  // in their order; alive as long as the backend

c10d::Backend* make_fake(c10d::Store* store, int rank, int world_size, int device, std::int64_t) {
  store->set("of device " + std::to_string(device), "1");
  made.push_back(c10::make_intrusive<FakeNccl>(rank, world_size, device).release());
  return made.back();
}

}  // namespace

TEST_SUITE("ddp/nccl") {
  // First, since the others load what this one wants unloaded.
  TEST_CASE("without a GPU the backend is refused before anything is loaded") {
    if (why_no_gpu().empty()) {
      MESSAGE("skipped: this machine has a GPU");
      return;
    }
    for (const std::string& problem : run_ranks(2, [](ProcessGroup group) {
           if (group.rank() >= 0) require_gpu("");
         })) {
      CHECK(problem.starts_with("the backend 'nccl' needs a GPU: NVIDIA's driver "));
      CHECK(problem.ends_with(" (CUDA_VISIBLE_DEVICES=''); 'gloo' carries CPU tensors"));
    }
    StoreHost host;
    std::string problem = problem_of([&] {
      init_process_group({.backend = "nccl", .timeout = std::chrono::seconds(10)},
                         env_of(0, 1, host.port()));
    });
    CHECK(problem.starts_with("init_process_group: the backend 'nccl' needs a GPU: "));
    CHECK(gpu_count() == 0);
    CHECK_FALSE(is_loaded("libtorch_cuda.so"));
    CHECK_FALSE(is_loaded("libddprun_nccl.so"));
  }

  TEST_CASE("the plug-in loads, and was built for the NCCL that torch brings") {
    if (DDPRUN_HAS_NCCL_PLUGIN == 0) {
      CHECK(problem_of([] { load_nccl(); }).starts_with("cannot load the NCCL plug-in: "));
      return;
    }
    const NcclInterface& plugin = load_nccl();
    CHECK(plugin.compiled_version >= 20000);
    CHECK(plugin.loaded_version() / 100 == plugin.compiled_version / 100);
    CHECK(std::string(plugin.class_name).ends_with("ProcessGroupNCCL"));
    CHECK(is_loaded("libtorch_cuda.so"));
    MESSAGE(std::string(plugin.class_name)
            << ", NCCL " << plugin.compiled_version << " at compile time, "
            << plugin.loaded_version() << " at run time, " << plugin.gpu_count() << " GPUs");
    if (!why_no_gpu().empty()) CHECK(plugin.gpu_count() == 0);
  }

  TEST_CASE("another NCCL than that of the build is refused") {
    CHECK(nccl_version_problem(23007, 23007) == "");
    CHECK(nccl_version_problem(23007, 23001) == "");
    CHECK(nccl_version_problem(23007, 22809)
              .starts_with("the NCCL plug-in was built for NCCL 2.30.7, and NCCL 2.28.9 is "
                           "loaded, which "));
    CHECK(nccl_version_problem(23007, 33007) != "");
  }

  TEST_CASE("a worker has the GPU of its local rank among those it sees, or those it asks for") {
    using Gpus = std::vector<at::Device>;
    CHECK(gpus_of({}, 0, 1, std::nullopt) == Gpus{gpu(0)});
    CHECK(gpus_of({}, 0, 1, "7") == Gpus{gpu(0)});  // --virtual-local-rank
    CHECK(gpus_of({}, 3, 4, "4,5,6,7") == Gpus{gpu(3)});
    CHECK(gpus_of({gpu(3), gpu(1)}, 0, 4, std::nullopt) == Gpus{gpu(3), gpu(1)});
    CHECK(problem_of([] { gpus_of({}, 2, 2, "0,1"); }) ==
          "local rank 2 has no GPU: 2 can be seen (CUDA_VISIBLE_DEVICES='0,1'), and each worker of "
          "a node needs one of its own");
    CHECK(problem_of([] {
            gpus_of({}, 0, 0, std::nullopt);
          }).starts_with("local rank 0 has no GPU: 0 can be seen, and "));
    CHECK(problem_of([] {
            gpus_of({gpu(0), gpu(2)}, 0, 2, std::nullopt);
          }) == "the device cuda:2 is not there: 2 can be seen");
    CHECK(problem_of([] {
            gpus_of({gpu(0), gpu(0)}, 0, 2, std::nullopt);
          }) == "the device cuda:0 is asked for twice");
    for (at::Device wrong : {at::Device(at::kCPU), at::Device(at::kCUDA)}) {
      CHECK(problem_of([&] { gpus_of({wrong}, 0, 2, std::nullopt); }) ==
            "the device " + wrong.str() +
                " is no GPU with a number, such as cuda:0, which the backend 'nccl' needs");
    }
  }

  TEST_CASE("each worker of a node has as many GPUs, or none has") {
    using Gpus = std::vector<at::Device>;
    CHECK(gpus_for_each(2, 0, 2, 4) == Gpus{gpu(0), gpu(1)});
    CHECK(gpus_for_each(2, 1, 2, 4) == Gpus{gpu(2), gpu(3)});
    CHECK(gpus_for_each(2, 0, 2, 3).empty());
    CHECK(gpus_for_each(2, 0, 1, 0).empty());
    CHECK(gpus_for_each(0, 0, 1, 4).empty());
  }

  TEST_CASE("devices without NCCL are refused") {
    StoreHost host;
    CHECK(problem_of([&] {
            init_process_group({.backend = "gloo", .devices = {gpu(0)}}, env_of(0, 1, host.port()));
          }) == "devices are for the backend 'nccl', and this one is 'gloo'");
  }

  TEST_CASE("each of a rank's GPUs has its own communicator") {
    made.clear();
    const NcclInterface driver{.size = sizeof(NcclInterface),
                               .class_name = "fake",
                               .compiled_version = 0,
                               .loaded_version = [] { return 0; },
                               .gpu_count = [] { return 4; },
                               .make_backend = make_fake};
    auto store = c10::make_intrusive<c10d::HashStore>();
    const std::vector<at::Device> gpus{gpu(2), gpu(3)};
    auto backend = make_nccl_backend(driver, store, 1, 2, gpus, std::chrono::seconds(7));
    REQUIRE(made.size() == 2);
    CHECK(made.back()->device == 2);  // the last to be made leaves its GPU as the current one
    CHECK(made[0]->device == 3);
    // Each has its part of the store.
    CHECK(store->check({"0/of device 2"}));
    CHECK(store->check({"1/of device 3"}));

    for (int number : {3, 2, 3}) {
      std::vector<at::Tensor> tensors{tensor_on(gpu(number))};
      backend->allreduce(tensors);
      backend->broadcast(tensors);
    }
    CHECK(made[0]->calls == std::vector<std::string>{"allreduce cuda:3", "broadcast cuda:3",
                                                     "allreduce cuda:3", "broadcast cuda:3"});
    CHECK(made[1]->calls == std::vector<std::string>{"allreduce cuda:2", "broadcast cuda:2"});
    std::vector<at::Tensor> elsewhere{tensor_on(gpu(0))};
    CHECK(problem_of([&] { backend->allreduce(elsewhere); }) ==
          "a tensor on cuda:0, which is no device of this rank (cuda:2, cuda:3)");
    backend->abort();
    CHECK(made[0]->calls.back() == "abort");
    CHECK(made[1]->calls.back() == "abort");

    constexpr bool has_shutdown = requires(c10d::Backend & any) {
      any.shutdown();
    };
    const std::vector<std::string> orderly(has_shutdown ? 1 : 0, "shutdown");
    auto ended = c10::make_intrusive<FakeNccl>(0, 1, 0);
    {
      GroupConnections connections;
      connections.nccl = c10::intrusive_ptr<c10d::Backend>(ended);
    }
    CHECK(ended->calls == orderly);
    ended->calls.clear();
    CHECK(problem_of([&] {
            GroupConnections connections;
            connections.nccl = c10::intrusive_ptr<c10d::Backend>(ended);
            throw DdpError("lost");
          }) == "lost");
    CHECK(ended->calls.empty());

    made.clear();
    auto only = make_nccl_backend(driver, store, 0, 2, {gpu(1)}, std::chrono::seconds(7));
    CHECK(only.get() == made.at(0));
  }
}
