// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/line_filter.h"

#include <algorithm>

namespace ddprun::process {

std::string matching_lines(std::string_view lines, std::size_t prefix_bytes,
                           const std::vector<std::string>& needles) {
  std::string matching;
  while (!lines.empty()) {
    // A prefix may hold newlines of its own.
    auto newline = lines.find('\n', std::min(prefix_bytes, lines.size()));
    std::string_view line = lines.substr(0, newline == lines.npos ? newline : newline + 1);
    std::string_view text = line.substr(std::min(prefix_bytes, line.size()));
    bool matches = std::any_of(needles.begin(), needles.end(), [&](const std::string& needle) {
      return text.find(needle) != std::string_view::npos;
    });
    if (matches) matching.append(line);
    lines.remove_prefix(line.size());
  }
  return matching;
}

}  // namespace ddprun::process
