// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/verification.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace ddprun::ddp {
namespace {

// What one rank has to say about a difference.  Bytes.
constexpr std::size_t kReportBytes = 1024;

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

void throw_first_problem(ProcessGroup& group, const std::string& problem) {
  at::Tensor report = at::zeros({static_cast<std::int64_t>(kReportBytes)}, at::kByte);
  std::size_t size = std::min(problem.size(), kReportBytes);
  std::copy_n(problem.begin(), size, report.data_ptr<std::uint8_t>());
  for (const at::Tensor& other : group.all_gather(report)) {
    const std::uint8_t* text = other.data_ptr<std::uint8_t>();
    std::string words(text, std::find(text, text + kReportBytes, 0));
    if (!words.empty()) throw DdpError(words);
  }
}

void verify_same(ProcessGroup& group, const std::string& what, const Description& description) {
  std::string reference = group.broadcast_text(joined(description));
  std::string difference = first_difference(description, split(reference));
  if (!difference.empty()) {
    difference = "the " + what + " of the ranks differ: rank " + std::to_string(group.rank()) +
                 " " + difference + "; all ranks must build the same, in the same order";
  }
  throw_first_problem(group, difference);
}

}  // namespace ddprun::ddp
