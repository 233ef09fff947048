// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/marks.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>

#include "store/base/number.h"
#include "worker/process/proc_files.h"

namespace ddprun::process {
namespace {

bool is_zombie(pid_t pid) {
  StatLine stat = split_stat(text_of_process(pid, "stat"));
  return stat.fields.empty() || stat.fields.front() == 'Z';
}

// The soft limit of a process; nullopt for "unlimited", or one that has gone.
std::optional<std::uint64_t> queue_limit_of(pid_t pid) {
  struct rlimit limit = {};
  if (::prlimit(pid, RLIMIT_MSGQUEUE, nullptr, &limit) == 0)
    return limit.rlim_cur == RLIM_INFINITY ? std::nullopt : std::optional(limit.rlim_cur);
  if (errno == ESRCH) return std::nullopt;
  // It is not this user's, or a sandbox forbids to ask; the text is for all, and takes longer.
  return parse_queue_limit(text_of_process(pid, "limits"));
}

// Lowers the soft limit by a random number that no other agent is likely to have, at most by half.
std::optional<std::uint64_t> mark_limit(std::uint64_t random) {
  constexpr std::uint64_t kLeast = 65536;     // a smaller one has too few numbers
  constexpr std::uint64_t kHuge = 1U << 31U;  // in the place of no limit
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MSGQUEUE, &limit) != 0) return std::nullopt;
  std::uint64_t before = limit.rlim_cur == RLIM_INFINITY ? kHuge : limit.rlim_cur;
  if (before < 2 * kLeast) return std::nullopt;
  limit.rlim_cur = before - 1 - random % (before / 2);
  if (::setrlimit(RLIMIT_MSGQUEUE, &limit) != 0) return std::nullopt;
  return limit.rlim_cur;
}

bool is_listed(std::string_view list, std::string_view mark) {
  for (;;) {
    auto comma = list.find(',');
    if (list.substr(0, comma) == mark) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

Marks mark_this_process(const std::string& inherited) {
  std::random_device random;
  Marks marks{.name = std::to_string(::getpid()) + "-" + std::to_string(random()),
              .queue_limit = std::nullopt};
  if (inherited.empty()) marks.queue_limit = mark_limit(random());
  return marks;
}

Marks marks_of_descendants(const Marks& marks) {
  Marks own = marks;
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_MSGQUEUE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    own.queue_limit = limit.rlim_cur;
  return own;
}

bool carries(pid_t pid, const Marks& marks) {
  return carries_limit(pid, marks) || carries_name(pid, marks);
}

// A zombie has no environment, but limits.
bool carries_limit(pid_t pid, const Marks& marks) {
  return marks.queue_limit && queue_limit_of(pid) == marks.queue_limit && !is_zombie(pid);
}

bool carries_name(pid_t pid, const Marks& marks) {
  return has_mark(text_of_process(pid, "environ"), marks.name);
}

bool has_mark(std::string_view environ, std::string_view mark) {
  const std::string_view name = kGuardianVariable;
  while (!environ.empty()) {
    auto end = environ.find('\0');
    std::string_view entry = environ.substr(0, end);
    if (entry.starts_with(name) && entry.substr(name.size()).starts_with('='))
      return is_listed(entry.substr(name.size() + 1), mark);
    if (end == std::string_view::npos) break;
    environ.remove_prefix(end + 1);
  }
  return false;
}

std::optional<std::uint64_t> parse_queue_limit(std::string_view limits) {
  constexpr std::string_view kName = "Max msgqueue size";
  auto found = limits.find(kName);
  if (found == std::string_view::npos) return std::nullopt;
  limits.remove_prefix(found + kName.size());
  limits.remove_prefix(std::min(limits.find_first_not_of(' '), limits.size()));
  return leading_number<std::uint64_t>(limits);
}

std::string guardian_variable(const std::string& inherited, const Marks& marks) {
  return inherited.empty() ? marks.name : inherited + "," + marks.name;
}

bool is_own_proc(const std::string& proc) {
  std::error_code error;
  return std::filesystem::read_symlink(proc + "/self", error) == std::to_string(::getpid());
}

}  // namespace ddprun::process
