// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/signals.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <sstream>

#include "cli/config/parse.h"
#include "store/base/number.h"

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

std::optional<agent::SlurmJob> slurm_job(
    const std::function<std::string(std::string_view)>& variable) {
  std::string id = variable("SLURM_JOB_ID");
  if (!number_in<std::uint32_t>(id)) return std::nullopt;
  auto count = [&](std::string_view name, int otherwise) {
    return number_in<int>(variable(name)).value_or(otherwise);
  };
  agent::SlurmJob job{.id = std::move(id),
                      .restart_count = count("SLURM_RESTART_COUNT", 0),
                      .node_count = count("SLURM_JOB_NUM_NODES", 1),
                      .node = count("SLURM_NODEID", 0),
                      .end = std::nullopt};
  if (auto end = number_in<std::int64_t>(variable("SLURM_JOB_END_TIME")))
    job.end = WallTime(std::chrono::seconds(*end));
  return job;
}

agent::SlurmSignals slurm_signals(const std::optional<std::string>& slurm_conf,
                                  const std::optional<std::string>& cgroup_conf) {
  using agent::SlurmSignals;
  if (!slurm_conf) return SlurmSignals::Unknown;
  std::optional<std::string> tracking = value_of(*slurm_conf, "proctracktype");
  if (!tracking && value_of(*slurm_conf, "include")) return SlurmSignals::Unknown;
  if (tracking == "proctrack/linuxproc") return SlurmSignals::ToAll;
  if (tracking == "proctrack/pgid") return SlurmSignals::ToAgent;
  if (tracking && tracking != "proctrack/cgroup") return SlurmSignals::Unknown;
  bool is_to_children =
      cgroup_conf && value_of(*cgroup_conf, "signalchildrenprocesses").value_or("no") == "yes";
  return is_to_children ? SlurmSignals::ToAll : SlurmSignals::ToAgent;
}

}  // namespace ddprun::cli
