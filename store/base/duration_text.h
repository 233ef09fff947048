// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "store/base/time.h"

namespace ddprun {

// "449 ms", "9.9 s", "41 s", "13 min 5 s", "2 h 13 min", "3 d 4 h".
inline std::string duration_text(Duration duration) {
  auto two_units = [](std::int64_t large, const char* large_unit, std::int64_t small,
                      const char* small_unit) {
    std::string text = std::to_string(large) + " " + large_unit;
    return small == 0 ? text : text + " " + std::to_string(small) + " " + small_unit;
  };
  double exact = std::chrono::duration<double>(duration).count();
  if (exact < 0.9995) return std::to_string(std::llround(exact * 1000)) + " ms";
  if (exact < 9.95) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", exact);
    return text;
  }
  auto seconds = static_cast<std::int64_t>(std::llround(exact));
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return two_units(seconds / 60, "min", seconds % 60, "s");
  std::int64_t minutes = (seconds + 30) / 60;
  if (minutes < 24 * 60) return two_units(minutes / 60, "h", minutes % 60, "min");
  std::int64_t hours = (minutes + 30) / 60;
  return two_units(hours / 24, "d", hours % 24, "h");
}

}  // namespace ddprun
