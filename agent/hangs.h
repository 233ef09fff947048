// SPDX-License-Identifier: BSD-3-Clause
//
// Workers that hang, from the suspicion to the evidence: by their silence (HangMonitor) or by a
// timer of torch's that has expired (TimerPipe).  While all workers show their stacks by SIGABRT
// their ends are held back, so that the one that hung is told first, as the failure.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "agent/hang_monitor.h"
#include "agent/timer_pipe.h"
#include "agent/worker_group.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper and the workers.  stop() must have completed before the destructor
// runs.
class Hangs {
 public:
  // `on_exit` gets the ends that were held back, `on_stuck` a hung worker that not even SIGKILL
  // ends.
  Hangs(boost::asio::any_io_executor executor, process::Reaper& reaper, const AgentConfig& config,
        const WorkerGroup& workers, std::shared_ptr<spdlog::logger> logger,
        std::function<void(const WorkerExit&)> on_exit,
        std::function<void(const RunningWorker&)> on_stuck);

  // The workers of an attempt run, and are watched, if that is wanted; `has_other_nodes`: the run
  // has some.
  void start(bool has_other_nodes);

  // They are being stopped: nobody is judged any more.  `is_asked`: by a signal, which waits for no
  // stacks; what stops them otherwise may be the same hang, seen from another node.
  void workers_stop(bool is_asked);

  // They have all ended, and what they left behind is to be ended too.  Returns the pids of
  // children of this process that are none of that, and end by themselves.
  std::set<pid_t> sweep_begins() { return watch_.interrupt(); }

  // Whether on_exit hears of this end later.
  bool hold_back(const WorkerExit& exit);

  // The first failure of the attempt: what hung, in words; "" for an ordinary end.  Nobody else is
  // judged any more.
  std::string judge_failure(int local_rank);

  // Whether the workers end by a SIGABRT of ours, for what it makes them write.
  bool is_showing_stacks() const { return is_showing_stacks_; }

  // A worker has ended.  What Python's faulthandler has written upon our SIGABRT is kept beside the
  // stacks of other tools.
  void worker_ended(const WorkerExit& exit);

  boost::asio::awaitable<void> stop() { return watch_.stop(); }

 private:
  void timer_expired(const ExpiredTimer& expired);
  void abandon(int local_rank);
  void release_held(int hung_rank);
  void keep_stack(const WorkerExit& exit);

  bool has_timeout_;
  const WorkerGroup& workers_;
  std::shared_ptr<spdlog::logger> logger_;
  std::function<void(const WorkerExit&)> on_exit_;
  std::function<void(const RunningWorker&)> on_stuck_;
  HangMonitor watch_;
  std::optional<TimerPipe> timers_;
  std::vector<WorkerExit> held_;
  bool is_running_ = false;  // the workers, and nobody stops them
  bool is_showing_stacks_ = false;
};

}  // namespace ddprun::agent
