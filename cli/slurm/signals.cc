// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/signals.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace ddprun::cli {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The last value of `key` in lines of "Key=Value", in small letters; "include FILE" lines are shown
// as the value of "include".
std::optional<std::string> value_of(const std::string& text, const std::string& key) {
  std::optional<std::string> value;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = lower(line.substr(0, line.find('#')));
    std::erase_if(line, [](unsigned char c) { return std::isspace(c) != 0; });
    if (line.starts_with(key + "=")) value = line.substr(key.size() + 1);
    if (key == "include" && line.starts_with(key)) value = line.substr(key.size());
  }
  return value;
}

}  // namespace

agent::SignalReach signal_reach(const std::optional<std::string>& slurm_conf,
                                const std::optional<std::string>& cgroup_conf) {
  using agent::SignalReach;
  if (!slurm_conf) return SignalReach::Unknown;
  std::optional<std::string> tracking = value_of(*slurm_conf, "proctracktype");
  if (!tracking && value_of(*slurm_conf, "include")) return SignalReach::Unknown;
  if (tracking == "proctrack/linuxproc") return SignalReach::EveryProcess;
  if (tracking == "proctrack/pgid") return SignalReach::Agent;
  if (tracking && tracking != "proctrack/cgroup") return SignalReach::Unknown;
  bool is_to_children =
      cgroup_conf && value_of(*cgroup_conf, "signalchildrenprocesses").value_or("no") == "yes";
  return is_to_children ? SignalReach::EveryProcess : SignalReach::Agent;
}

}  // namespace ddprun::cli
