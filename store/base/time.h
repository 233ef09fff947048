// SPDX-License-Identifier: BSD-3-Clause
//
// What a time is here.  Nothing that decides reads a clock: a shell reads both clocks once per
// turn and hands the result inward, so a test can play a week of failures in a millisecond.
#pragma once

#include <chrono>

namespace ddprun {

using Duration = std::chrono::nanoseconds;
using MonoTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

// One instant, on both clocks.  `mono` is for every duration and deadline on this machine; `wall`
// only for what people or other machines read.  Walls are never compared across machines.
struct Now {
  MonoTime mono{};
  WallTime wall{};
};

}  // namespace ddprun
