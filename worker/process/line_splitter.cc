// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/line_splitter.h"

#include <utility>

namespace ddprun::process {

std::string LineSplitter::feed(std::string_view bytes) {
  std::string lines;
  for (;;) {
    auto newline = bytes.find('\n');
    if (newline == std::string_view::npos) break;
    lines.append(prefix_).append(partial_).append(bytes.substr(0, newline + 1));
    partial_.clear();
    bytes.remove_prefix(newline + 1);
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxLineBytes) lines += finish();
  return lines;
}

std::string LineSplitter::finish() {
  if (partial_.empty()) return {};
  return prefix_ + std::exchange(partial_, {}) + "\n";
}

}  // namespace ddprun::process
