// SPDX-License-Identifier: BSD-3-Clause
#include "worker/shm/decide/format.h"

#include <algorithm>
#include <sstream>

namespace ddprun::ddp {
namespace {

std::string counted(const std::string& noun, const std::vector<std::string>& names) {
  constexpr std::size_t kMaxNamed = 8;
  std::string text = noun + (names.size() == 1 ? " " : "s ");
  const std::size_t named = std::min(names.size(), kMaxNamed);
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == names.size();
    if (i > 0) text += is_last ? " and " : ", ";
    text += names[i];
  }
  if (names.size() > named) text += " and " + std::to_string(names.size() - named) + " more";
  return text;
}

}  // namespace

std::string format_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> names;
  for (int rank : ranks) names.push_back(std::to_string(rank));
  return counted("rank", names);
}

std::string format_parameters(const std::vector<std::string>& names) {
  return counted("parameter", names);
}

std::string format_seconds(std::chrono::milliseconds time) {
  std::ostringstream text;
  text << std::chrono::duration<double>(time).count() << " s";
  return text.str();
}

}  // namespace ddprun::ddp
