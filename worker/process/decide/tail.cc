// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/tail.h"

#include <algorithm>

namespace ddprun::process {

void Tail::feed(std::string_view bytes) {
  total_bytes_ += bytes.size();
  kept_.append(bytes.substr(bytes.size() - std::min(bytes.size(), kKeptBytes)));
  if (kept_.size() > 2 * kKeptBytes) kept_.erase(0, kept_.size() - kKeptBytes);
}

std::vector<std::string> Tail::lines(std::size_t count) const {
  std::string_view text = kept_;
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < count) {
    auto end = text.rfind('\n');
    bool is_first = end == std::string_view::npos;
    bool is_cut = is_first && total_bytes_ > kept_.size();
    if (is_cut && !lines.empty()) break;
    lines.emplace_back(is_first ? text : text.substr(end + 1));
    if (is_first) break;
    text = text.substr(0, end);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace ddprun::process
