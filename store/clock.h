// SPDX-License-Identifier: BSD-3-Clause
//
// The clocks of this machine.  Only shells include this header; what decides is given the time.
#pragma once

#include "store/base/time.h"

namespace ddprun {

inline MonoTime mono_now() {
  return std::chrono::steady_clock::now();
}

inline WallTime wall_now() {
  return std::chrono::system_clock::now();
}

// Both clocks, to be read once per turn of the loop.
inline Now read_clocks() {
  return {.mono = mono_now(), .wall = wall_now()};
}

}  // namespace ddprun
