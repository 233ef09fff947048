// SPDX-License-Identifier: BSD-3-Clause
//
// The clocks of this machine.  Only shells include this header; what decides is given the time.
#pragma once

#include <time.h>

#include <chrono>

#include "store/base/time.h"

namespace ddprun {

inline MonoTime mono_now() {
  return std::chrono::steady_clock::now();
}

inline WallTime wall_now() {
  return std::chrono::system_clock::now();
}

// What the calling thread has had of a processor.
inline Duration thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// Both clocks, to be read once per turn of the loop.
inline Now read_clocks() {
  return {.mono = mono_now(), .wall = wall_now()};
}

}  // namespace ddprun
