// SPDX-License-Identifier: BSD-3-Clause
//
// One worker of this node as a process: its signals, its streams, and what its end leaves behind.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/worker_exit.h"
#include "agent/end_reader.h"
#include "agent/error_files.h"
#include "agent/worker_output.h"
#include "agent/workers.h"
#include "store/base/error.h"
#include "store/base/exit_status.h"
#include "worker/process/cgroup.h"
#include "worker/process/spawn.h"

namespace ddprun::agent {

// The end of the stderr that a worker has written into its folder, as many lines as an exit has.
// Waits for the disk.
std::vector<std::string> last_stderr_lines(const std::string& folder);

// Threads: used from the executor's only thread.
class LocalWorker {
 public:
  struct Parts {
    int local_rank = 0;
    int rank = 0;
    std::string error_file;  // where it writes one; empty: nowhere
    WorkerStreams streams;
    process::CgroupLeaf cgroup;
  };
  // Takes the report of its exec from `starting`, and leaves the process to be watched.  The
  // agent's copies of what the worker has are closed when that does not need them any more.
  LocalWorker(const boost::asio::any_io_executor& executor, Parts parts,
              process::StartingProcess& starting);

  int local_rank() const { return parts_.local_rank; }

  // Calls `then` when it is known whether its program runs, and not after destruction.
  void watch_exec(std::function<void()> then);
  bool is_exec_known() const { return !exec_report_; }
  bool is_fork() const { return is_fork_; }
  // Whether its program runs, once: nullopt afterwards.  Waits for it.  Where it does not, the
  // process ends at once, and this is told when it `is_gone`: no sweep is to find it.
  std::optional<Result<void>> take_exec_result(bool is_gone);

  // What it would have had, for one in its place: it is a fork that has ended before it began.
  Parts take_parts() { return std::move(parts_); }

  // It has ended, could not be started, or is abandoned.
  bool has_ended() const { return has_ended_; }
  void set_ended() { has_ended_ = true; }
  // Its end, with all that is known of it without a disk.
  WorkerExit exit(process::ExitStatus status);
  // What has to be read for the rest of a failure, and is put into that exit: the error file, which
  // goes into a folder where it lies loose, and the end of a stderr that went past the agent.
  // nullptr for nothing.  It waits for the disk, and is valid beyond the worker.
  ReadEnd reader_of_end(const ErrorFiles& error_files) const;

  // To its process group; to it alone; SIGKILL to all that is in its cgroup.
  void signal_group(int signal) const;
  void signal(int signal) const;
  void kill_cgroup() const { parts_.cgroup.kill(); }

  // Passes on all that it has written.  Nothing of it lives any more.
  void finish_output();

  // What it returns is valid beyond the worker.
  RunningWorker describe() const;

 private:
  Parts parts_;
  int pid_;
  bool is_fork_;
  bool has_ended_ = false;
  std::optional<boost::asio::posix::stream_descriptor> exec_report_;  // nullopt: it is known
  std::optional<Result<void>> exec_result_;
  std::string exec_context_;
};

}  // namespace ddprun::agent
