// SPDX-License-Identifier: BSD-3-Clause
//
// The one source of chance in a simulation.  The same on every machine and standard library, so
// that a seed is a scenario (splitmix64; Steele, Lea and Flood 2014).
#pragma once

#include <cstdint>

#include "store/base/time.h"

namespace ddprun::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // In [least, most].
  int number(int least, int most) {
    return least + static_cast<int>(next() % static_cast<std::uint64_t>(most - least + 1));
  }
  Duration duration(Duration least, Duration most) {
    auto range = static_cast<std::uint64_t>((most - least).count() + 1);
    return least + Duration(static_cast<std::int64_t>(next() % range));
  }
  bool chance(int percent) { return number(1, 100) <= percent; }

 private:
  std::uint64_t state_;
};

}  // namespace ddprun::sim
