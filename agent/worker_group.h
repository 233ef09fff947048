// SPDX-License-Identifier: BSD-3-Clause
//
// The local workers as one: start all, signal all, exits as callbacks.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "agent/decide/worker_exit.h"
#include "agent/worker_output.h"
#include "rendezvous/handler.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// One worker that runs.
struct RunningWorker {
  int local_rank = 0;
  int rank = 0;
  int pid = 0;
  std::string folder;                           // in the log folder; empty where it has none
  std::function<std::uint64_t()> output_bytes;  // written so far through the agent and to its files
};

// The file in which workers are told why they are to stop (worker/stop_reason.h); empty without a
// log folder.
std::string stop_file(const WorkerGroupConfig& config);

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the consoles and the thread for the disk.  After destruction no
// callback runs; the processes go on.
class WorkerGroup {
 public:
  // `on_exit` is told of each worker that ends, `on_warning` of what the user should know.
  WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper, Consoles consoles,
              process::IoThread& disk, WorkerGroupConfig config,
              std::function<void(const WorkerExit&)> on_exit,
              std::function<void(const std::string&)> on_warning);
  ~WorkerGroup();

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
  // do.  `on_exit` is called after it, from the event loop, once for each worker that was started.
  // All workers of the round before must have ended.
  void start(const rendezvous::Round& round, int restart_count,
             std::function<void(const std::optional<StartFailure>&)> on_started);

  // The workers are to end, perhaps before on_started was called.  Then it is called for failures
  // only, once for each worker that turns out not to start (or once for all), with all others as
  // `started`; and on_exit does not wait for it.
  void stop_starting();

  // Sends `signal` to the process group of each worker that has not ended.
  void signal_all(int signal);

  // SIGKILL to all workers and, where they have cgroups of their own, to all that is in these.
  void kill_all();

  // Sends `signal` once to each worker that has not ended, and not to what it has started.
  void signal_each(int signal);

  // Forgets a worker that nothing ends.  `on_exit` is not called for it.
  void abandon(int local_rank);

  // Those that have not ended, by local rank.  Their functions are valid until the next start().
  std::vector<RunningWorker> running() const;

  // All of the attempt, in the same way.  One of them may have ended before the last was started.
  std::vector<RunningWorker> started() const;

  // Passes on all that the workers have written and closes their log files.  To be called when
  // nothing of the workers lives any more.
  void finish_output();

  // The run's log folder; empty when there is none.
  std::string log_path() const { return config_.log_dir ? config_.log_dir->path() : ""; }

  // Why the log files miss lines, "" while they miss none.
  const std::string& log_loss() const { return log_loss_; }

  // At the end: a log folder that was made for this run alone and holds no log is removed.
  void remove_empty_log_dir();

 private:
  struct Worker;
  struct Start;
  void begin_all(AttemptFiles files);
  Result<void> begin_one(AttemptOutput& output, worker::WorkerEnv env);
  void watch(const std::shared_ptr<Worker>& worker, process::Process process);
  void settle(Worker& worker);
  void fail_start(int local_rank, std::string why, int exit_code);
  void end_start_if_settled();
  void report_slow_start();
  void ended(Worker& worker, process::ExitStatus status);
  void output_lost(const Error& error);
  void keep_error_file(Worker& worker);
  static RunningWorker describe(const Worker& worker);
  static void read_last_output(Worker& worker, WorkerExit& exit);

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  Consoles consoles_;
  process::IoThread& disk_;
  WorkerGroupConfig config_;
  std::function<void(const WorkerExit&)> on_exit_;
  std::function<void(const std::string&)> on_warning_;
  std::string log_loss_;
  std::unique_ptr<Start> start_;  // the one under way; nullptr for none
  int cgroups_made_ = 0;
  int starts_ = 0;            // attempts so far
  int restart_count_ = 0;     // of the current one
  std::string late_attempt_;  // its folder, where that is made late and has been
  std::vector<std::shared_ptr<Worker>> workers_;  // of the current round, by local rank
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
