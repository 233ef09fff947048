// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/proc_files.h"

#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

constexpr std::size_t kMaxName = 15;  // TASK_COMM_LEN of the kernel, without the final 0

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

std::string text_of_process(pid_t pid, const char* name) {
  return text_of_file("/proc/" + std::to_string(pid) + "/" + name).value_or("");
}

StatLine split_stat(std::string_view stat) {
  auto open = stat.find('(');
  auto close = stat.rfind(')');  // the name itself may contain brackets
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return {};
  auto fields = stat.find_first_not_of(' ', close + 1);
  return {.name = std::string(stat.substr(open + 1, close - open - 1)),
          .fields = std::string(stat.substr(std::min(fields, stat.size())))};
}

ProcessStat parse_stat(std::string_view stat, long ticks_per_second) {
  ProcessStat result;
  std::istringstream fields{split_stat(stat).fields};
  if (ticks_per_second <= 0 || !(fields >> result.state)) return result;
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

ProcessStat stat_of(pid_t pid) {
  return parse_stat(text_of_process(pid, "stat"), ::sysconf(_SC_CLK_TCK));
}

Duration main_thread_cpu_time(pid_t pid) {
  const std::string name = "task/" + std::to_string(pid) + "/stat";
  return parse_stat(text_of_process(pid, name.c_str()), ::sysconf(_SC_CLK_TCK)).cpu_time;
}

std::uint64_t start_time_of(pid_t pid) {
  constexpr int kFieldsBefore = 19;  // from the state on
  std::istringstream fields{split_stat(text_of_process(pid, "stat")).fields};
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  std::uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
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

std::string program_name_of(pid_t pid) {
  return split_stat(text_of_process(pid, "stat")).name;
}

bool is_shm_manager(std::string_view name) {
  return name == std::string_view("torch_shm_manager").substr(0, kMaxName);
}

std::string parse_slurm_job(std::string_view proc_cgroup) {
  constexpr std::string_view kFolder = "/job_";
  auto found = proc_cgroup.find(kFolder);
  if (found == std::string_view::npos) return "";
  proc_cgroup.remove_prefix(found + kFolder.size());
  return std::string(proc_cgroup.substr(0, proc_cgroup.find_first_not_of("0123456789")));
}

std::string doing_of(pid_t pid) {
  return doing_of(pid, stat_of(pid).state);
}

std::string doing_of(pid_t pid, char state) {
  std::string text = name_of_state(state);
  if (state != 'S' && state != 'D') return text;
  std::string function = text_of_process(pid, "wchan");
  return function.empty() || function == "0" ? text : text + " in " + function;
}

}  // namespace ddprun::process
