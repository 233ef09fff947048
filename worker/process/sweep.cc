// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/sweep.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "worker/process/process_stats.h"
#include "worker/process/text_file.h"

namespace ddprun::process {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr auto kKillLimit = 2s;     // how long a killed process may take to go
constexpr auto kLookAgain = 100ms;  // for the deaths that raise no SIGCHLD here
constexpr std::size_t kNamesShown = 5;

// Whether /proc has our numbers.  In a namespace of process ids that kept the /proc of another one
// they are other processes', which are not ours to end.
bool has_our_numbers() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self", error) == std::to_string(::getpid());
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream file(task.path() / "children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  return children;
}

// The name, or nothing for a process that has gone or is a zombie.
std::string living_name(pid_t pid) {
  std::string stat = text_of_file("/proc/" + std::to_string(pid) + "/stat").value_or("");
  auto open = stat.find('(');
  auto close = stat.rfind(')');  // the name itself may contain brackets
  if (open == std::string::npos || close == std::string::npos || close + 2 >= stat.size())
    return "";
  char state = stat[close + 2];
  return state == 'Z' || state == 'X' ? "" : stat.substr(open + 1, close - open - 1);
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

std::vector<Leftover> descendants(const std::set<pid_t>& spared) {
  return descendants_of(::getpid(), spared);
}

std::vector<Leftover> descendants_of(pid_t pid, const std::set<pid_t>& spared) {
  if (!has_our_numbers()) return {};
  std::vector<Leftover> found;
  std::vector<pid_t> to_visit = {pid};
  while (!to_visit.empty()) {
    pid_t parent = to_visit.back();
    to_visit.pop_back();
    for (pid_t child : children_of(parent)) {
      to_visit.push_back(child);  // a zombie has no children: they are ours by now
      if (spared.contains(child)) continue;
      if (std::string name = living_name(child); !name.empty()) found.push_back({child, name});
    }
  }
  return found;
}

asio::awaitable<SweepResult> sweep(Reaper& reaper, const MonoTime& deadline,
                                   std::set<pid_t> spared) {
  SweepResult result;
  std::set<pid_t> asked;
  for (;;) {
    reaper.reap_strangers();
    std::vector<Leftover> left = descendants(spared);
    MonoTime now = std::chrono::steady_clock::now();
    if (left.empty() || now >= deadline + kKillLimit) {
      for (Leftover& leftover : left) leftover.name += ", " + doing_of(leftover.pid);
      result.stuck = std::move(left);
      co_return result;
    }
    for (Leftover& leftover : left) {
      bool is_new = asked.insert(leftover.pid).second;
      if (now >= deadline) {
        ::kill(leftover.pid, SIGKILL);
      } else if (is_new) {
        ::kill(leftover.pid, SIGTERM);
      }
      if (is_new) result.found.push_back(std::move(leftover));
    }
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_at(std::min(now + kLookAgain, now < deadline ? deadline : MonoTime::max()));
    reaper.listen([&timer] { timer.cancel(); });
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    reaper.listen(nullptr);
  }
}

}  // namespace ddprun::process
