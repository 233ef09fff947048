// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/process_stats.h"

#include <unistd.h>

#include <array>
#include <sstream>

#include "worker/process/sweep.h"
#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

std::string text_of(pid_t pid, const char* name) {
  return text_of_file("/proc/" + std::to_string(pid) + "/" + name).value_or("");
}

ProcessStat stat_of(pid_t pid) {
  return parse_stat(text_of(pid, "stat"), ::sysconf(_SC_CLK_TCK));
}

std::string name_of_state(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "in D state";
    case 'T':
    case 't':
      return "stopped";
    default:
      return "";
  }
}

}  // namespace

ProcessStat parse_stat(std::string_view stat, long ticks_per_second) {
  ProcessStat result;
  auto close = stat.rfind(')');  // the name before it may hold anything
  if (close == std::string_view::npos || ticks_per_second <= 0) return result;
  std::istringstream fields{std::string(stat.substr(close + 1))};
  fields >> result.state;
  std::string skipped;  // from ppid to cminflt
  for (int i = 0; i < 8; ++i) fields >> skipped;
  std::uint64_t faults_of_children = 0;
  fields >> result.major_faults >> faults_of_children;
  result.major_faults += faults_of_children;
  long ticks = 0;
  for (long part = 0, i = 0; i < 4 && fields >> part; ++i) ticks += part;
  result.cpu_time = std::chrono::nanoseconds(std::chrono::seconds(1)) * ticks / ticks_per_second;
  return result;
}

std::uint64_t parse_io(std::string_view io) {
  std::istringstream fields{std::string(io)};
  std::uint64_t bytes = 0;
  std::string name;
  for (std::uint64_t value = 0; fields >> name >> value;) {
    if (name == "rchar:" || name == "wchar:") bytes += value;
  }
  return bytes;
}

ProcessStats stats_of(pid_t pid) {
  ProcessStats stats{.doing = doing_of(pid)};
  auto add = [&stats](pid_t one) {
    ProcessStat stat = stat_of(one);
    stats.cpu_time += stat.cpu_time;
    stats.moved_bytes += parse_io(text_of(one, "io")) + stat.major_faults * kBytesPerMajorFault;
  };
  add(pid);
  for (const Leftover& below : descendants_of(pid)) add(below.pid);
  return stats;
}

std::string doing_of(pid_t pid) {
  char state = stat_of(pid).state;
  std::string text = name_of_state(state);
  if (state != 'S' && state != 'D') return text;
  std::string function = text_of(pid, "wchan");
  return function.empty() || function == "0" ? text : text + " in " + function;
}

}  // namespace ddprun::process
