// SPDX-License-Identifier: BSD-3-Clause
//
// What NVIDIA's library for monitoring says of the GPUs of this machine, by process.  The library
// is loaded when it is first asked, and is not needed.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>

#include "rendezvous/decide/vitals.h"

namespace ddprun::agent {

// Threads: any one at a time.  Its calls may wait for the driver.
class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;

  // The memory that each process has on its GPUs, and of the busiest of these how busy it is, with
  // all that use it.  Empty where there is no library, no GPU, or no process that the driver names
  // as this PID namespace does.
  std::map<pid_t, rendezvous::GpuVitals> by_process();

 private:
  struct Library;
  std::unique_ptr<Library> library_;  // nullptr: there is none
  bool has_tried_ = false;
};

}  // namespace ddprun::agent
