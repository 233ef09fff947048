// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks in a sentence.
#pragma once

#include <string>
#include <vector>

namespace ddprun::agent {

// "0..2, 5" for {0, 1, 2, 5}.
std::string describe_ranks(std::vector<int> ranks);

// "ranks 0..2, 5"; "rank 3" for {3}.
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace ddprun::agent
