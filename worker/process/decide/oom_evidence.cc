// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/decide/oom_evidence.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "store/base/number.h"

namespace ddprun::process {
namespace {

constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;  // v1 writes 2^63 rounded to a page

// Calls `visit` with each line, until it returns true.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    auto end = text.find('\n');
    if (visit(text.substr(0, end)) || end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view mark) {
  auto found = text.find(mark);
  if (found == std::string_view::npos) return std::nullopt;
  return leading_number<std::int64_t>(text.substr(found + mark.size()));
}

bool rose(const std::optional<std::int64_t>& before, const std::optional<std::int64_t>& after) {
  return before && after && *after > *before;
}

std::string limit_words(const OomReading& reading) {
  if (!reading.limit_bytes) return "memory cgroup limit reached";
  return "memory cgroup limit reached (limit " + describe_bytes(*reading.limit_bytes) + ")";
}

}  // namespace

std::optional<MemoryCgroup> parse_memory_cgroup(std::string_view proc_cgroup) {
  std::optional<MemoryCgroup> found;
  for_each_line(proc_cgroup, [&](std::string_view line) {
    auto first = line.find(':');
    auto second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) return false;
    std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    std::string path(line.substr(second + 1));
    if (controllers.find(",memory,") != std::string::npos) {
      found = {.is_v2 = false, .path = path};
      return true;
    }
    if (line.starts_with("0::")) found = {.is_v2 = true, .path = path};
    return false;
  });
  return found;
}

std::optional<std::int64_t> parse_counter(std::string_view text, std::string_view name) {
  std::optional<std::int64_t> number;
  for_each_line(text, [&](std::string_view line) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ')
      return false;
    number = leading_number<std::int64_t>(line.substr(name.size() + 1));
    return true;
  });
  return number;
}

std::optional<std::int64_t> parse_limit(std::string_view text) {
  auto number = leading_number<std::int64_t>(text);
  if (!number || *number >= kNoLimit) return std::nullopt;
  return number;
}

std::optional<KernelKill> parse_kernel_kill(std::string_view record) {
  auto pid = number_after(record, "Killed process ");
  if (!pid) return std::nullopt;
  KernelKill kill{.pid = static_cast<int>(*pid)};
  kill.is_by_cgroup = record.find("emory cgroup out of memory") != std::string_view::npos;
  if (!kill.is_by_cgroup && record.find("ut of memory") == std::string_view::npos)
    return std::nullopt;
  if (auto kib = number_after(record, "anon-rss:")) kill.rss_bytes = *kib * 1024;
  return kill;
}

std::string oom_words(const OomReading& before, const OomReading& after,
                      const std::vector<KernelKill>& kernel_kills, int pid, bool is_killed) {
  const std::string who = "the kernel's OOM killer: ";
  auto own = std::find_if(kernel_kills.begin(), kernel_kills.end(),
                          [pid](const KernelKill& kill) { return kill.pid == pid; });
  if (is_killed && own != kernel_kills.end()) {
    std::string held =
        own->rss_bytes < 0 ? "" : ", the worker held " + describe_bytes(own->rss_bytes);
    return who + (own->is_by_cgroup ? limit_words(after) : "the machine is out of memory") + held;
  }
  if (rose(before.cgroup_kills, after.cgroup_kills)) {
    std::string why = after.limit_bytes ? limit_words(after) : "out of memory";
    if (is_killed) return who + why;
    return "the kernel's OOM killer has ended a process beside it: " + why;
  }
  if (is_killed && rose(before.machine_kills, after.machine_kills)) {
    // Has the kernel named all that it ended, then this worker is not one of them.
    std::int64_t kills = *after.machine_kills - *before.machine_kills;
    if (static_cast<std::int64_t>(kernel_kills.size()) >= kills) return "";
    return "perhaps the kernel's OOM killer, which has ended a process on this machine meanwhile";
  }
  return "";
}

std::string describe_bytes(std::int64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", amount);
  std::string digits = text.data();
  if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
  return digits + " " + kUnits.at(unit);
}

}  // namespace ddprun::process
