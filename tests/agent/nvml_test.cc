// SPDX-License-Identifier: BSD-3-Clause
//
// With fake_nvml.cc as NVIDIA's library.
#include "agent/nvml.h"

#include <doctest/doctest.h>
#include <unistd.h>

using namespace ddprun;
using namespace ddprun::agent;

TEST_SUITE("agent/nvml") {
  TEST_CASE("a process has the memory of all its GPUs, and is as busy as the busiest") {
    Nvml nvml;
    for (int look = 0; look < 2; ++look) {
      auto gpus = nvml.by_process();
      CHECK(gpus.size() == 3);
      CHECK(gpus.at(::getpid()) ==
            rendezvous::GpuVitals{.used_mib = 3072, .total_mib = 2 * 81'920, .busy_percent = 97});
      CHECK(gpus.at(1).used_mib == 2);
      CHECK(gpus.at(2) == rendezvous::GpuVitals{.used_mib = 5, .total_mib = 81'920});
    }
  }
}
