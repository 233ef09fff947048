// SPDX-License-Identifier: BSD-3-Clause
//
// Formats lists and times for the runtime's error sentences.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddprun::ddp {

// "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more".
std::string format_ranks(const std::vector<int>& ranks);

// "parameter a", "parameters a, b and c", "parameters a, b, c, d, e, f, g, h and 12 more".
std::string format_parameters(const std::vector<std::string>& names);

// "0.3 s".
std::string format_seconds(std::chrono::milliseconds time);

}  // namespace ddprun::ddp
