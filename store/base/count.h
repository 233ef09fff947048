// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace ddprun {

// "1 worker", "2 workers".
template <std::integral Count>
std::string count_of(Count count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace ddprun
