// SPDX-License-Identifier: BSD-3-Clause
//
// The NCCL plug-in as far as it goes without a GPU: it is built, loads, and says what is missing.
// gpu_test.py is the rest.
#include <fstream>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/ddp/ranks.h"
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

}  // namespace

TEST_SUITE("ddp/nccl") {
  // First, since the others load what this one wants unloaded.
  TEST_CASE("without a GPU the backend is refused before anything is loaded") {
    if (why_no_gpu().empty()) {
      MESSAGE("skipped: this machine has a GPU");
      return;
    }
    for (const std::string& problem : run_ranks(2, [](ProcessGroup group) {
           make_nccl_backend(group.store(), group.env(), "", std::chrono::seconds(10));
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
    if (why_no_gpu() != "") CHECK(plugin.gpu_count() == 0);
  }

  TEST_CASE("another NCCL than that of the build is refused") {
    CHECK(nccl_version_problem(23007, 23007) == "");
    CHECK(nccl_version_problem(23007, 23001) == "");
    CHECK(nccl_version_problem(23007, 22809)
              .starts_with("the NCCL plug-in was built for NCCL 2.30.7, and NCCL 2.28.9 is "
                           "loaded, which "));
    CHECK(nccl_version_problem(23007, 33007) != "");
  }

  TEST_CASE("a worker has the GPU of its local rank among those it sees") {
    CHECK(gpu_of(0, 1, std::nullopt) == 0);
    CHECK(gpu_of(0, 1, "7") == 0);  // --virtual-local-rank
    CHECK(gpu_of(3, 4, "4,5,6,7") == 3);
    CHECK(problem_of([] { gpu_of(2, 2, "0,1"); }) ==
          "local rank 2 has no GPU: 2 can be seen (CUDA_VISIBLE_DEVICES='0,1'), and each worker of "
          "a node needs one of its own");
    CHECK(problem_of([] {
            gpu_of(0, 0, std::nullopt);
          }).starts_with("local rank 0 has no GPU: 0 can be seen, and "));
  }
}
