// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/pulse.h"

#include <cstddef>

namespace ddprun::rendezvous {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{32} << 10;
constexpr std::string_view kAllRuns = "\n";  // no run has this name: it is printable

}  // namespace

// A line for the time, and one for each run.
std::string encode_pulse(MonoTime published, std::span<const std::string> alone) {
  std::string time = std::to_string(published.time_since_epoch().count());
  std::string text = time;
  for (const std::string& run : alone) {
    text += '\n';
    text += run;
    if (text.size() > kMaxBytes) return time.append(kAllRuns).append(kAllRuns);
  }
  return text;
}

std::string pulse_for(std::string_view run, std::string_view text) {
  std::size_t end = text.find('\n');
  std::string pulse(text.substr(0, end));
  bool is_alone = false;
  if (end != std::string_view::npos && text.substr(end) == "\n\n") is_alone = true;
  while (end != std::string_view::npos && !is_alone) {
    text.remove_prefix(end + 1);
    end = text.find('\n');
    is_alone = text.substr(0, end) == run;
  }
  if (is_alone) pulse += kAloneMark;
  return pulse;
}

}  // namespace ddprun::rendezvous
