// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/verification.h"

#include <algorithm>

namespace ddprun::ddp {
namespace {

std::string joined(const Description& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

Description split(const std::string& text) {
  Description lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string first_difference(const Description& mine, const Description& reference) {
  for (std::size_t i = 0; i < std::max(mine.size(), reference.size()); ++i) {
    std::string here = i < mine.size() ? "'" + mine[i] + "'" : "nothing more";
    std::string there = i < reference.size() ? "'" + reference[i] + "'" : "nothing more";
    if (here != there) return "has " + here + " where rank 0 has " + there;
  }
  return "";
}

void verify_same(ProcessGroup& group, const std::string& what, const Description& description) {
  std::string reference = group.broadcast_text(joined(description));
  std::string difference = first_difference(description, split(reference));
  if (!difference.empty()) {
    difference = "the " + what + " of the ranks differ: rank " + std::to_string(group.rank()) +
                 " " + difference + "; all ranks must build the same, in the same order";
  }
  group.throw_first_problem(difference);
}

}  // namespace ddprun::ddp
