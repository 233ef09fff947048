// SPDX-License-Identifier: BSD-3-Clause
//
// Where the output of one attempt's workers goes: for each worker two descriptors, and the pumps
// behind them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/attempt_files.h"
#include "agent/decide/config.h"
#include "store/base/fd.h"
#include "worker/env.h"
#include "worker/process/log_file.h"
#include "worker/process/output.h"

namespace ddprun::agent {

// The agent's own streams.
struct Consoles {
  process::Console& out;
  process::Console& err;
};

// The two streams of one worker.
struct WorkerStreams {
  int stdout_fd = -1;  // to give to the worker; -1: the agent's own
  int stderr_fd = -1;
  std::string folder;  // the worker's in the log folder; empty without one

  std::shared_ptr<process::Tail>
      stdout_tail;  // stays empty where it does not pass through the agent
  std::shared_ptr<process::Tail> stderr_tail;
  bool is_seen = true;  // both pass through the agent or go to its files

  // The agent's copies of the files that the worker writes by itself.
  std::vector<process::LogFile> files;
  std::vector<std::unique_ptr<process::OutputPump>> pumps;

  // Closes what only the worker needs, so that its end is seen.  A shared disk may wait at the
  // close of a file that the worker has begun to write: that is left to the thread for the disk.
  void worker_has_them();

  // Passes on what the worker has written so far.
  void pull();

  // Passes on all that the worker has written.
  void finish();
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the configuration, the consoles and the thread; the streams may outlive it.
class AttemptOutput {
 public:
  // `on_lost` is told, once for each file, of output that a log file did not take.
  AttemptOutput(boost::asio::any_io_executor executor, Consoles consoles, process::IoThread& disk,
                const WorkerGroupConfig& config, AttemptFiles files,
                std::function<void(const Error&)> on_lost);

  // Makes the worker's pipes, for its files.  To be called once for each; `env` says which.
  Result<WorkerStreams> open_worker(const worker::WorkerEnv& env);

 private:
  // What is different between stdout and stderr.
  struct Kind {
    StreamRoute route;
    process::Console& console;
    const char* file_name;
    Fd file;  // closed where it goes to none
    std::shared_ptr<process::FilteredLog> filtered;
    std::shared_ptr<process::Tail> tail;  // for what passes through the agent
    bool is_kept;                         // passes through the agent where it could be inherited
  };
  std::shared_ptr<process::FilteredLog> filtered(const char* name, Fd file,
                                                 const std::vector<std::string>& filters) const;
  Result<int> open_stream(WorkerStreams& streams, Kind kind, const worker::WorkerEnv& env) const;
  Result<int> open_pump(WorkerStreams& streams, Kind kind, const worker::WorkerEnv& env) const;

  boost::asio::any_io_executor executor_;
  Consoles consoles_;
  process::IoThread& disk_;
  const WorkerGroupConfig& config_;
  AttemptFiles files_;
  std::function<void(const Error&)> on_lost_;
  std::shared_ptr<process::FilteredLog> filtered_stdout_;  // nullptr without filters
  std::shared_ptr<process::FilteredLog> filtered_stderr_;
};

}  // namespace ddprun::agent
