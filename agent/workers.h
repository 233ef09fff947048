// SPDX-License-Identifier: BSD-3-Clause
//
// The local workers as one, as the agent sees them.  WorkerGroup runs them as processes; a test has
// none (tests/support/fake_workers.h).
#pragma once

#include <sys/types.h>

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/core.h"
#include "agent/decide/log_loss.h"
#include "agent/decide/worker_exit.h"
#include "rendezvous/handler.h"

namespace ddprun::agent {

// One worker that runs.
struct RunningWorker {
  int local_rank = 0;
  int rank = 0;
  int pid = 0;
  std::string folder{};                           // in the log folder; empty where it has none
  std::function<std::uint64_t()> output_bytes{};  // written so far, through the agent
  bool is_output_seen = true;  // false: some of it goes past the agent and its log files
  // The last of its stderr, at most WorkerExit::kStderrLines; none where it goes past the agent.
  std::function<std::vector<std::string>()> stderr_lines{};
  std::function<std::string()> last_line{};  // of it; empty where none went that way
};

// Threads: used from the executor's only thread.
class Workers {
 public:
  using OnExit = std::function<void(const WorkerExit&)>;
  using OnWarning = std::function<void(const std::string&)>;
  using OnInfo = std::function<void(const std::string&)>;

  virtual ~Workers() = default;

  // `on_exit` is told of each worker that ends, `on_warning` of what the user should know, and
  // `on_info` of what is as it should be.  To be called before start().
  virtual void listen(OnExit on_exit, OnWarning on_warning, OnInfo on_info) = 0;

  // Why not all workers were started: the reason of the lowest local rank.  The others, `started`
  // of them, run or have run.
  struct StartFailure {
    int started = 0;
    std::string why;
    int exit_code = kExitCannotStart;  // of the run
  };

  // Starts all workers of `round`, in the order of their local ranks, and returns before they run:
  // the disk may keep their log files and their programs waiting, and a warning says so then.
  // `on_started` is called once when it is known of each worker whether it runs; nullopt: they all
  // do.  Their ends are reported after it, from the event loop, once for each worker that was
  // started.  All workers of the round before must have ended.
  virtual void start(const rendezvous::Round& round, int restart_count,
                     std::function<void(const std::optional<StartFailure>&)> on_started) = 0;

  // The workers are to end, perhaps before on_started was called.  Then it is called for failures
  // only, once for each worker that turns out not to start (or once for all), with all others as
  // `started`; and no end waits for it.
  virtual void stop_starting() = 0;

  // Sends `signal` to the process group of each worker that has not ended.
  virtual void signal_all(int signal) = 0;

  // SIGKILL to all workers and, where they have cgroups of their own, to all that is in these.
  virtual void kill_all() = 0;

  // Sends `signal` once to each worker that has not ended, and not to what it has started.
  virtual void signal_each(int signal) = 0;

  // The same to one of them, which hears it even where it is stopped.
  virtual void signal_one(int local_rank, int signal) = 0;

  // Reports at once the ends that it holds back to read what those workers have left.
  virtual void report_ends() = 0;

  // Forgets a worker that nothing ends.  Its end is not reported.
  virtual void abandon(int local_rank) = 0;

  // Those that have not ended, by local rank.  Their functions are valid until the next start().
  virtual std::vector<RunningWorker> running() const = 0;

  // All of the attempt, in the same way.  One of them may have ended before the last was started.
  virtual std::vector<RunningWorker> started() const = 0;

  // Passes on all that the workers have written and closes their log files.  To be called when
  // nothing of the workers lives any more.
  virtual void finish_output() = 0;

  // The run's log folder; empty when there is none.
  virtual std::string log_path() const = 0;

  // Which log file misses lines, and why: one in `folder`, or else the first; empty while none
  // does.
  virtual LogLoss log_loss(const std::string& folder) const = 0;

  // What a console misses, and why, a sentence; empty while it misses nothing.
  virtual std::string console_loss() const = 0;

  // Waits until consoles that are files have taken what there is, at the latest until `deadline`.
  virtual boost::asio::awaitable<void> consoles_written(MonoTime deadline) = 0;

  // A session beside the workers' of which no sweep may end a process; 0 for none.  And the end of
  // all that is in it, at the run's.
  virtual pid_t helper() const = 0;
  virtual boost::asio::awaitable<void> end_helper() = 0;

  // At the end: a log folder that was made for this run alone and holds no log is removed.
  virtual boost::asio::awaitable<void> remove_empty_log_dir() = 0;
};

}  // namespace ddprun::agent
