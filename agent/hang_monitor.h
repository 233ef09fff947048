// SPDX-License-Identifier: BSD-3-Clause
//
// Watches the running workers for hangs, and ends what hangs: agent/decide/hang decides; this takes
// samples, collects stacks, reads torch's timers and sends the signals.  The end of a hung worker
// is then an ordinary failure, with begin_failure() as its words.
//
// The heartbeat file of a worker is named in DDPRUN_HEARTBEAT_FILE (worker/ENVIRONMENT.md).
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/hang.h"
#include "agent/decide/whereabouts.h"
#include "agent/timer_pipe.h"
#include "agent/workers.h"
#include "rendezvous/decide/findings.h"
#include "store/task_group.h"
#include "worker/process/decide/stack_text.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"
#include "worker/process/stacks.h"

namespace ddprun::agent {

struct HangMonitorConfig {
  hang::Config decide{};
  const TimerFile* timer_file = nullptr;   // of torch's timers; nullptr: none are watched
  std::vector<std::string> environment{};  // of the stack tools
  std::string search_path{};               // where they are looked for
};

// Of the first failure of an attempt.
struct HangJudgement {
  std::string cause{};  // what hung, in words; empty: the worker has ended by itself
  Duration silence{};   // how long ago its last sign of life was; zero: it was not silent
  // It waited for its peers, and none of them was ended for that: what is known of the others of
  // this node from just before its end.
  std::optional<rendezvous::TimedOutWait> wait{};
  std::vector<rendezvous::Finding> findings{};
};

inline constexpr const char* kHeartbeatVariable = "DDPRUN_HEARTBEAT_FILE";
std::string heartbeat_path(const std::string& folder);

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the thread for the disk and the workers.  stop() must have
// completed before the destructor runs.
class HangMonitor {
 public:
  // `on_exit` gets the ends that were held back, `on_stuck` a hung worker that not even SIGKILL
  // ends.  `before_stacks` is called before stacks are taken: a worker has one collector at a time.
  HangMonitor(
      boost::asio::any_io_executor executor, process::Reaper& reaper, process::IoThread& disk,
      HangMonitorConfig config, Workers& workers, std::shared_ptr<spdlog::logger> logger,
      std::function<void(const WorkerExit&)> on_exit,
      std::function<void(const RunningWorker&)> on_stuck,
      std::function<void()> before_stacks = [] {});

  // The workers of an attempt run, and are watched, if that is wanted; `has_other_nodes`: the run
  // has some.
  void start(bool has_other_nodes);

  // The workers are being stopped, and none is judged any more.  `is_asked`: by a signal, which
  // does not wait for stacks that are being collected.  (What stops them otherwise may be the same
  // hang, seen from another node.)
  void workers_stop(bool is_asked);

  // The workers have all ended, and what they left behind is to be ended too.  Stacks are collected
  // no longer.  Returns the pids of the tools that are just ending, which the sweep leaves alone.
  std::set<pid_t> sweep_begins() { return interrupt(); }

  // A worker has ended: hears of it before anything else does.  Returns whether it keeps the exit
  // for now, and gives it to on_exit later.
  bool take_exit(const WorkerExit& exit);

  // The first failure of the attempt, whose worker this was: why it hung, if it did.  If our
  // SIGABRT has ended it, is_showing_stacks() holds from now on.
  HangJudgement begin_failure(int local_rank);

  bool is_taking_stacks() const { return state_.is_taking; }

  // Whether the workers end by a SIGABRT of ours, for what it makes them write.
  bool is_showing_stacks() const { return is_showing_stacks_; }

  // A worker has ended.  What Python's faulthandler has written upon our SIGABRT is kept beside the
  // stacks of other tools.
  void worker_ended(const WorkerExit& exit);

  boost::asio::awaitable<void> stop();

 private:
  boost::asio::awaitable<void> watch();
  void on(const hang::Event& event);
  void perform(const std::vector<hang::Action>& actions);
  MonoTime next_due() const;
  void timer_expired(const ExpiredTimer& expired);
  boost::asio::awaitable<void> look();
  // What the disk knows of the workers' life, by local rank.
  struct Traces {
    std::uint64_t log_bytes = 0;
    std::int64_t heartbeat_ns = 0;
  };
  std::vector<ActivitySample> sample(const std::map<int, Traces>& traces) const;
  void name_silent(const HangVerdict& verdict) const;
  boost::asio::awaitable<void> take_stacks(std::uint64_t collection);
  // Of the workers but the `known` ones.
  boost::asio::awaitable<void> collect(std::vector<process::StackTool> tools, std::set<int> known,
                                       MonoTime until);
  // What each worker does, by local rank, as far as its stacks tell.
  boost::asio::awaitable<std::map<int, process::Activity>> read_stacks();
  std::set<pid_t> interrupt();
  void abandon(int local_rank);
  void keep_stack(const WorkerExit& exit);
  boost::asio::awaitable<void> release(int first);

  HangMonitorConfig config_;
  process::IoThread& disk_;
  Workers& workers_;
  std::shared_ptr<spdlog::logger> logger_;
  std::function<void(const WorkerExit&)> on_exit_;
  std::function<void(const RunningWorker&)> on_stuck_;
  std::function<void()> before_stacks_;
  process::StackCollector stacks_;
  std::optional<TimerPipe> timers_;
  hang::State state_;
  boost::asio::steady_timer timer_;            // at next_due()
  std::map<int, hang::action::Blame> blamed_;  // by local rank, of the current attempt
  std::map<int, WorkerView> views_;            // likewise, when stacks were taken last
  std::vector<WorkerExit> held_;               // until on_exit_ gets them
  bool has_python_stacks_ = false;             // the last collection had a tool for them
  bool is_showing_stacks_ = false;
  bool is_watching_ = false;  // the workers run, and are not being stopped
  bool has_watched_ = false;  // watch() runs
  bool is_looking_ = false;   // look() runs
  int starts_ = 0;
  int interruptions_ = 0;  // of what collects stacks
  store::TaskGroup tasks_;
};

}  // namespace ddprun::agent
