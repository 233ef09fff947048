// SPDX-License-Identifier: BSD-3-Clause
//
// The local workers as processes: start all, signal all, exits as callbacks.
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
#include "agent/log_dir.h"
#include "agent/worker_output.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// The file in which workers are told why they are to stop (worker/stop_reason.h); empty without a
// log folder.
std::string stop_file(const WorkerGroupConfig& config);

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the consoles and the thread for the disk.  After destruction no
// callback runs; the processes go on.
class WorkerGroup : public Workers {
 public:
  WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper, Consoles consoles,
              process::IoThread& disk, WorkerGroupConfig config);
  ~WorkerGroup() override;

  void listen(OnExit on_exit, OnWarning on_warning) override;
  void start(const rendezvous::Round& round, int restart_count,
             std::function<void(const std::optional<StartFailure>&)> on_started) override;
  void stop_starting() override;
  void signal_all(int signal) override;
  void kill_all() override;
  void signal_each(int signal) override;
  void signal_one(int local_rank, int signal) override;
  void abandon(int local_rank) override;
  std::vector<RunningWorker> running() const override;
  std::vector<RunningWorker> started() const override;
  void finish_output() override;
  std::string log_path() const override { return config_.log_dir ? config_.log_dir->path() : ""; }
  const std::string& log_loss() const override { return log_loss_; }
  void remove_empty_log_dir() override;

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
  OnExit on_exit_;
  OnWarning on_warning_;
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
