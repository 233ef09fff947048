// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/sweep.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "store/base/folder.h"
#include "worker/process/pidfd.h"
#include "worker/process/proc_files.h"

namespace ddprun::process {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kKillLimit = 2s;     // how long a killed process may take to go
constexpr auto kLookAgain = 100ms;  // for the deaths that raise no SIGCHLD here
constexpr auto kLookAtOnce = 1ms;   // after a look that may have missed some
constexpr std::size_t kNamesShown = 5;

// Nothing where there are no descriptors left to look with.
std::optional<std::vector<pid_t>> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task : entries_of("/proc/" + std::to_string(pid) + "/task", error)) {
    errno = 0;
    std::ifstream file(task.path() / "children");
    if (!file && (errno == EMFILE || errno == ENFILE)) return std::nullopt;
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  if (error == std::errc::too_many_files_open || error == std::errc::too_many_files_open_in_system)
    return std::nullopt;
  return children;
}

// The name, or nothing for a process that has gone or is a zombie.
std::string living_name(pid_t pid) {
  StatLine stat = split_stat(text_of_process(pid, "stat"));
  bool is_dead = stat.fields.empty() || stat.fields.front() == 'Z' || stat.fields.front() == 'X';
  return is_dead ? "" : stat.name;
}

// 0 for a process that has gone.
pid_t parent_of(pid_t pid) {
  std::istringstream fields(split_stat(text_of_process(pid, "stat")).fields);
  std::string state;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent;
}

bool is_below_this_process(pid_t pid) {
  const pid_t self = ::getpid();
  while (pid > 1) {
    pid = parent_of(pid);
    if (pid == self) return true;
  }
  return false;
}

struct Walk {
  std::vector<Leftover> found;
  // Those that had died before they were visited: their children may have come to this process
  // after this process's own were read, and so may be missing.
  std::set<pid_t> dead;
  bool lacks_descriptors = false;  // to look with

  // `before`: those of the look before, whose children had come to this process by then.
  bool may_miss_some(const std::set<pid_t>& before) const {
    return lacks_descriptors || !std::ranges::includes(before, dead);
  }
};

// Every living process below `pid`; `is_left_alone` leaves out one with all below it.
template <class IsLeftAlone>
Walk living_below(pid_t pid, const IsLeftAlone& is_left_alone) {
  Walk walk;
  if (!is_own_proc()) return walk;
  std::vector<Leftover> to_visit = {{.pid = pid}};
  while (!to_visit.empty()) {
    Leftover visited = std::move(to_visit.back());
    to_visit.pop_back();
    auto children = children_of(visited.pid);
    if (!children) walk.lacks_descriptors = true;
    for (pid_t child : children.value_or(std::vector<pid_t>())) {
      if (is_left_alone(child, visited.pid)) continue;
      // A zombie has no children: they are ours by now.
      to_visit.push_back({.pid = child, .parent = visited.pid});
    }
    if (visited.pid == pid) continue;
    // Looked at after its children: one that lives still had them all.
    visited.name = living_name(visited.pid);
    if (visited.name.empty()) {
      walk.dead.insert(visited.pid);
    } else {
      walk.found.push_back(std::move(visited));
    }
  }
  return walk;
}

bool is_spared(pid_t pid, const SweepScope& scope) {
  return scope.spared.contains(pid) ||
         (!scope.spared_sessions.empty() && scope.spared_sessions.contains(::getsid(pid)));
}

Walk walk_descendants(const SweepScope& scope) {
  auto is_left_alone = [&, self = ::getpid()](pid_t pid, pid_t parent) {
    if (scope.bystanders.has(pid)) return true;
    bool may_be_foreign = parent == self && scope.marks && !is_spared(pid, scope);
    // Asked in this order: one that has died carries no mark any more.
    return may_be_foreign && !carries(pid, *scope.marks) && !living_name(pid).empty();
  };
  Walk walk = living_below(::getpid(), is_left_alone);
  std::erase_if(walk.found, [&](const Leftover& one) {
    return is_spared(one.pid, scope) || is_shm_manager(one.name) != scope.is_for_shm_managers;
  });
  return walk;
}

// A program whose handler saves takes a second signal for the wish to end at once, or for another
// one.
bool is_on_its_way(pid_t pid, const AskedGroups& asked) {
  if (asked.signal == 0 || !asked.groups.contains(::getpgid(pid))) return false;
  constexpr std::string_view kCaught = "SigCgt:\t";
  std::string status = text_of_process(pid, "status");
  auto at = status.find(kCaught);
  if (at == std::string::npos) return false;
  std::uint64_t caught = std::strtoull(status.c_str() + at + kCaught.size(), nullptr, 16);
  return (caught >> (asked.signal - 1) & 1) != 0;
}

// multiprocessing's resource tracker and fork server end a moment after the process that uses them:
// nobody has left them behind.  They are known by the command that multiprocessing starts them
// with.  What a fork server has forked has its command as well, and is none of them.
bool is_helper_of_python(const Leftover& leftover) {
  // To read the command of a process that stands in the kernel may take for ever.
  if (stat_of(leftover.pid).state == 'D') return false;
  std::string command = text_of_process(leftover.pid, "cmdline");
  bool is_named_so =
      command.find("from multiprocessing.resource_tracker import main") != std::string::npos ||
      command.find("from multiprocessing.forkserver import main") != std::string::npos;
  return is_named_so && text_of_process(leftover.parent, "cmdline") != command;
}

}  // namespace

std::string to_string(const std::vector<Leftover>& leftovers) {
  std::ostringstream text;
  for (std::size_t i = 0; i < std::min(leftovers.size(), kNamesShown); ++i) {
    text << (i == 0 ? "" : ", ") << leftovers[i].name << " (" << leftovers[i].pid << ")";
  }
  if (leftovers.size() > kNamesShown) text << " and " << leftovers.size() - kNamesShown << " more";
  return text.str();
}

Bystanders Bystanders::note() {
  Bystanders noted;
  for (const Leftover& process : descendants_of(::getpid())) {
    noted.started_at_[process.pid] = start_time_of(process.pid);
  }
  return noted;
}

bool Bystanders::has(pid_t pid) const {
  auto found = started_at_.find(pid);
  return found != started_at_.end() && found->second == start_time_of(pid);
}

std::vector<Leftover> descendants(const SweepScope& scope) {
  return walk_descendants(scope).found;
}

std::vector<Leftover> descendants_of(pid_t pid) {
  return living_below(pid, [](pid_t, pid_t) { return false; }).found;
}

std::string obstacle_to_sweep(const std::string& proc) {
  if (!is_own_proc(proc))
    return proc + " is not that of this namespace of process ids; mount it anew in the container";
  std::string own = std::to_string(::getpid());
  std::error_code error;
  bool has_children =
      std::filesystem::exists(proc + "/" + own + "/task/" + own + "/children", error);
  return has_children ? "" : "this kernel lacks CONFIG_PROC_CHILDREN";
}

asio::awaitable<SweepResult> sweep(Reaper& reaper, const MonoTime& deadline, SweepScope scope) {
  SweepResult result;
  std::set<pid_t> seen;
  std::set<pid_t> asked;
  // A process that is spared may leave its own dead uncollected for as long as it lives.
  std::set<pid_t> dead;
  for (;;) {
    reaper.reap_strangers();
    Walk walk = walk_descendants(scope);
    MonoTime now = std::chrono::steady_clock::now();
    bool is_clean = walk.found.empty() && !walk.may_miss_some(dead);
    std::vector<Leftover> left = std::move(walk.found);
    dead = std::move(walk.dead);
    if (is_clean || now >= deadline + kKillLimit) {
      for (Leftover& leftover : left) leftover.name += ", " + doing_of(leftover.pid);
      result.stuck = std::move(left);
      co_return result;
    }
    // Before any gets a signal: a child of a fork server is known by its parent.
    std::set<pid_t> helpers;
    for (const Leftover& leftover : left) {
      if (!seen.contains(leftover.pid) && is_helper_of_python(leftover))
        helpers.insert(leftover.pid);
    }
    // What a handler of SIGTERM starts, such as an upload, is its process's affair while that
    // lives. A parent comes before its children here.
    std::set<pid_t> with_handlers = asked;
    for (const Leftover& leftover : left) {
      bool is_of_a_handler = with_handlers.contains(leftover.parent);
      if (is_of_a_handler) with_handlers.insert(leftover.pid);
      // It may have ended since it was found, and its number may be another process's by now.
      SignalTarget process(leftover.pid);
      if (!is_below_this_process(leftover.pid)) continue;
      if (now >= deadline) {
        process.send(SIGKILL);
      } else if (!scope.is_for_shm_managers && !is_of_a_handler &&
                 asked.insert(leftover.pid).second && !is_on_its_way(leftover.pid, scope.asked)) {
        process.send(SIGTERM);
      }
      bool is_news = seen.insert(leftover.pid).second && !helpers.contains(leftover.pid);
      if (is_news) result.found.push_back(leftover);
    }
    // Shared, since a sweep that is destroyed meanwhile leaves what listens behind.
    auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
    MonoTime again = now + (left.empty() ? Duration(kLookAtOnce) : Duration(kLookAgain));
    timer->expires_at(std::min(again, now < deadline ? deadline : MonoTime::max()));
    reaper.listen([waits = std::weak_ptr(timer)] {
      if (auto waiting = waits.lock()) waiting->cancel();
    });
    co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
    reaper.listen(nullptr);
  }
}

}  // namespace ddprun::process
