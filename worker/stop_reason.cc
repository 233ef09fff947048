// SPDX-License-Identifier: BSD-3-Clause
#include "worker/stop_reason.h"

#include <algorithm>
#include <iterator>

#include "store/base/number.h"

namespace ddprun::worker {
namespace {

constexpr StopCause kCauses[] = {
    StopCause::Signal,       StopCause::TimeLimit,  StopCause::Preempted,
    StopCause::Cancelled,    StopCause::NodeFailed, StopCause::Requeued,
    StopCause::WorkerFailed, StopCause::NewRound,   StopCause::RunEnded};

std::string_view next_line(std::string_view& text) {
  std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

std::string_view to_word(StopCause cause) {
  switch (cause) {
    case StopCause::Signal:
      return "signal";
    case StopCause::TimeLimit:
      return "time-limit";
    case StopCause::Preempted:
      return "preempted";
    case StopCause::Cancelled:
      return "cancelled";
    case StopCause::NodeFailed:
      return "node-failed";
    case StopCause::Requeued:
      return "requeued";
    case StopCause::WorkerFailed:
      return "worker-failed";
    case StopCause::NewRound:
      return "new-round";
    case StopCause::RunEnded:
      return "run-ended";
  }
  return "";
}

std::string to_stop_file(const StopReason& reason) {
  std::string words = reason.words;
  std::replace(words.begin(), words.end(), '\n', ' ');
  std::string left = reason.seconds_left ? std::to_string(*reason.seconds_left) : "";
  return std::string(to_word(reason.cause)) + "\n" + words + "\n" + left + "\n";
}

std::optional<StopReason> parse_stop_file(std::string_view text) {
  const auto* cause = std::ranges::find(kCauses, next_line(text), to_word);
  if (cause == std::end(kCauses)) return std::nullopt;
  StopReason reason{
      .cause = *cause, .words = std::string(next_line(text)), .seconds_left = std::nullopt};
  reason.seconds_left = number_in<int>(next_line(text));
  return reason;
}

}  // namespace ddprun::worker
