// SPDX-License-Identifier: BSD-3-Clause
//
// Where the output of one attempt's workers goes: its folder in the log folder, and for each worker
// two descriptors and the pumps behind them.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "store/base/fd.h"
#include "worker/env.h"
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

  std::vector<Fd> files;  // the agent's copies of what the worker has
  std::vector<std::unique_ptr<process::OutputPump>> pumps;

  // Closes what only the worker needs, so that its end is seen.
  void worker_has_them();

  // Passes on what the worker has written so far.
  void pull();

  // Passes on all that the worker has written.
  void finish();
};

// Threads: used from the executor's only thread.
// Lifetime: borrows the configuration and the consoles; the streams may outlive it.
class AttemptOutput {
 public:
  // Makes the attempt's folder.  `on_lost` is told, once for each file, of output that a log file
  // did not take.
  static Result<AttemptOutput> open(boost::asio::any_io_executor executor, Consoles consoles,
                                    const WorkerGroupConfig& config, int restart_count,
                                    std::function<void(const Error&)> on_lost);

  // Makes the worker's folder, files and pipes.  `env` says who it is.
  Result<WorkerStreams> open_worker(const worker::WorkerEnv& env) const;

  // The attempt's folder; empty without a log folder.
  const std::string& folder() const { return folder_; }

 private:
  AttemptOutput(boost::asio::any_io_executor executor, Consoles consoles,
                const WorkerGroupConfig& config, std::function<void(const Error&)> on_lost)
      : executor_(std::move(executor)),
        consoles_(consoles),
        config_(config),
        on_lost_(std::move(on_lost)) {}

  // What is different between stdout and stderr.
  struct Kind {
    StreamRoute route;
    process::Console& console;
    const char* file_name;
    std::shared_ptr<process::FilteredLog> filtered;
    std::shared_ptr<process::Tail> tail;  // for what passes through the agent
    bool is_kept;                         // passes through the agent where it could be inherited
  };
  Result<std::shared_ptr<process::FilteredLog>> open_filtered(
      const char* name, const std::vector<std::string>& filters) const;
  Result<int> open_stream(WorkerStreams& streams, const Kind& kind,
                          const worker::WorkerEnv& env) const;
  Result<int> open_pump(WorkerStreams& streams, const Kind& kind,
                        const worker::WorkerEnv& env) const;

  boost::asio::any_io_executor executor_;
  Consoles consoles_;
  const WorkerGroupConfig& config_;
  std::function<void(const Error&)> on_lost_;
  std::string folder_;
  std::shared_ptr<process::FilteredLog> filtered_stdout_;  // nullptr without filters
  std::shared_ptr<process::FilteredLog> filtered_stderr_;
};

}  // namespace ddprun::agent
