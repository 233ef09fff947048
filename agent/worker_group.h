// SPDX-License-Identifier: BSD-3-Clause
//
// The local workers as one: start all, signal all, exits as callbacks.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/worker_output.h"
#include "rendezvous/handler.h"
#include "worker/error_file.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// One worker that has ended.
struct WorkerExit {
  int local_rank = 0;
  int rank = 0;
  int pid = 0;
  process::ExitStatus status;
  std::string message;  // of its error file; empty where it left none
};

// What a worker that has failed left in its log folder.
struct LastWords {
  worker::ErrorReport report;             // empty where there is no error file
  std::string stderr_path;                // empty where its stderr went to no file
  std::vector<std::string> stderr_lines;  // the last ones, at most kStderrLines

  static constexpr std::size_t kStderrLines = 20;
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper and the consoles.  After destruction no callback runs; the processes
// go on.
class WorkerGroup {
 public:
  // `on_exit` is told of each worker that ends, `on_warning` of what the user should know.
  WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper, Consoles consoles,
              WorkerGroupConfig config, std::function<void(const WorkerExit&)> on_exit,
              std::function<void(const std::string&)> on_warning);
  ~WorkerGroup();

  // Why not all workers came to be.  Those before it run.
  struct StartFailure {
    int started = 0;
    std::string why;
  };

  // Starts all workers of `round`, in the order of their local ranks.  `on_exit` is called, from
  // the event loop, once for each worker that was started.  All workers of the round before must
  // have ended.
  std::optional<StartFailure> start(const rendezvous::Round& round, int restart_count);

  // Sends `signal` to the process group of each worker that has not ended.
  void signal_all(int signal);

  // Passes on all that the workers have written and closes their log files.  To be called when
  // nothing of the workers lives any more.
  void finish_output();

  // Reads what the worker with `local_rank` left in the attempt `restart_count`.
  LastWords last_words(int restart_count, int local_rank) const;

  // The run's log folder; empty when there is none.
  std::string log_path() const { return config_.log_dir ? config_.log_dir->path() : ""; }

  // At the end: a log folder that was made for this run alone and holds no log is removed.
  void remove_empty_log_dir();

 private:
  struct Worker;
  Result<void> start_one(const AttemptOutput& output, worker::WorkerEnv env);
  void output_lost(const Error& error);

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  Consoles consoles_;
  WorkerGroupConfig config_;
  std::function<void(const WorkerExit&)> on_exit_;
  std::function<void(const std::string&)> on_warning_;
  bool has_told_of_loss_ = false;
  std::map<int, std::string> attempt_folders_;    // by restart count, the last one of each
  std::vector<std::unique_ptr<Worker>> workers_;  // of the current round, by local rank
};

}  // namespace ddprun::agent
