// SPDX-License-Identifier: BSD-3-Clause
//
// Looks at the running workers from time to time, and ends what hangs: agent/decide/activity
// decides, this samples, collects stacks, and sends SIGABRT (upon which Python's faulthandler
// writes the Python stack to stderr), five seconds later SIGKILL.  The end of that worker is then
// an ordinary failure, with cause_of() as its words.
//
// The heartbeat file of a worker is named in DDPRUN_HEARTBEAT_FILE (worker/ENVIRONMENT.md).
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/activity.h"
#include "store/task_group.h"
#include "worker/process/reaper.h"
#include "worker/process/stacks.h"

namespace ddprun::agent {

struct HangConfig {
  Duration timeout{};  // zero: no watch
  Duration stack_limit = std::chrono::seconds(30);
  Duration kill_limit = std::chrono::seconds(10);  // that SIGKILL may take to end it
  std::vector<std::string> environment;            // of the stack tools
  std::string search_path;                         // where they are looked for
};

struct WatchedWorker {
  int local_rank = 0;
  int rank = 0;
  int pid = -1;
  std::string folder;                           // for stacks, and with the heartbeat; empty: none
  std::function<std::uint64_t()> output_bytes;  // how much it has written so far
};

inline constexpr const char* kHeartbeatVariable = "DDPRUN_HEARTBEAT_FILE";
std::string heartbeat_path(const std::string& folder);

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper.  stop() must have completed before the destructor runs.
class HangMonitor {
 public:
  // `on_stuck` is told of a hung worker that has not ended within kill_limit of SIGKILL, `on_shown`
  // of the one that hung when is_holding() is over.
  HangMonitor(boost::asio::any_io_executor executor, process::Reaper& reaper, HangConfig config,
              std::shared_ptr<spdlog::logger> logger, std::function<void(int local_rank)> on_stuck,
              std::function<void(int local_rank)> on_shown);

  // The workers of an attempt run.  Forgets those before.  Without a timeout they are only there to
  // be ended by end().  `has_other_nodes`: their peers run on other nodes, too, whose agents watch
  // them; where it is not clear who hangs here, these go first.
  void start(std::vector<WatchedWorker> workers, bool has_other_nodes);

  // Ends a worker for another reason than its silence, as one that hangs: with the stacks of all
  // before, and `cause` as its words.  `signal`: SIGKILL, or what it wants to be ended by.
  void end(int local_rank, int signal, std::string cause);

  // A worker has ended, or is being stopped: it is looked at no more.
  void forget(int local_rank) { workers_.erase(local_rank); }
  void forget_all() { workers_.clear(); }

  // The workers are to hear a signal, or have ended: stacks that are being collected are not waited
  // for.  Returns the pids of the tools that are just ending.
  std::set<pid_t> interrupt() { return stacks_.interrupt(); }

  // Whether all workers are just showing their stacks by SIGABRT, which takes a few seconds.  Their
  // ends meanwhile are to be held back, so that the one that hung comes first and nobody is
  // interrupted.
  bool is_holding() const { return is_holding_; }

  // Whether Python's stacks are collected by a tool of this machine; else only SIGABRT shows them.
  bool has_python_stacks() const;

  // The words on a worker that this has ended; "" for any other.
  std::string cause_of(int local_rank) const;

  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> watch();
  boost::asio::awaitable<void> end_hung(HangVerdict verdict);
  boost::asio::awaitable<std::optional<HangVerdict>> silent_after(Duration grace);
  boost::asio::awaitable<void> end_one(int local_rank, int signal, std::string cause);
  boost::asio::awaitable<void> kill_one(int local_rank, int signal);
  boost::asio::awaitable<void> collect_all_stacks();
  std::vector<ActivitySample> sample() const;
  HangVerdict judged_by_stacks(HangVerdict verdict) const;

  process::StackCollector stacks_;
  HangConfig config_;
  std::shared_ptr<spdlog::logger> logger_;
  std::function<void(int)> on_stuck_;
  std::function<void(int)> on_shown_;
  ActivityLog activity_;
  std::map<int, WatchedWorker> workers_;  // by local rank
  std::map<int, std::string> causes_;     // by local rank, of the current attempt
  store::TaskGroup tasks_;
  bool has_other_nodes_ = false;
  bool is_watching_ = false;
  bool is_holding_ = false;
};

}  // namespace ddprun::agent
