// SPDX-License-Identifier: BSD-3-Clause
//
// Which of a worker's lines --duplicate-stdout-filters and --duplicate-stderr-filters copy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddprun::process {

// Those of `lines` (whole ones, each with a prefix of `prefix_bytes` bytes in front) whose text
// behind the prefix holds one of `needles`, prefix included.
std::string matching_lines(std::string_view lines, std::size_t prefix_bytes,
                           const std::vector<std::string>& needles);

}  // namespace ddprun::process
