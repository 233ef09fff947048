// SPDX-License-Identifier: BSD-3-Clause
#include "worker/stop_reason.h"

#include <algorithm>
#include <array>

#include "store/base/number.h"

namespace ddprun::worker {
namespace {

// In the order of StopCause.
constexpr std::array<std::string_view, 9> kWords = {"signal",        "time-limit",  "preempted",
                                                    "cancelled",     "node-failed", "requeued",
                                                    "worker-failed", "new-round",   "run-ended"};

std::string_view next_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

std::string_view to_word(StopCause cause) {
  return kWords.at(static_cast<std::size_t>(cause));
}

std::string to_stop_file(const StopReason& reason) {
  std::string words = reason.words;
  std::replace(words.begin(), words.end(), '\n', ' ');
  std::string left = reason.seconds_left ? std::to_string(*reason.seconds_left) : "";
  return std::string(to_word(reason.cause)) + "\n" + words + "\n" + left + "\n";
}

std::optional<StopReason> parse_stop_file(std::string_view text) {
  auto word = std::find(kWords.begin(), kWords.end(), next_line(text));
  if (word == kWords.end()) return std::nullopt;
  StopReason reason{.cause = static_cast<StopCause>(word - kWords.begin()),
                    .words = std::string(next_line(text)),
                    .seconds_left = std::nullopt};
  reason.seconds_left = number_in<int>(next_line(text));
  return reason;
}

}  // namespace ddprun::worker
