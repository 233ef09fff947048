// SPDX-License-Identifier: BSD-3-Clause
//
// The local workers as processes: start all, signal all, exits as callbacks.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/attempt_files.h"
#include "agent/attempt_start.h"
#include "agent/decide/config.h"
#include "agent/decide/worker_exit.h"
#include "agent/end_reader.h"
#include "agent/error_files.h"
#include "agent/local_worker.h"
#include "agent/warm_restarts.h"
#include "agent/worker_output.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"
#include "worker/env.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// Threads: used from the executor's only thread.
// Lifetime: borrows the reaper, the consoles and the thread for the disk.  After destruction no
// callback runs; the processes go on.
class WorkerGroup : public Workers {
 public:
  WorkerGroup(boost::asio::any_io_executor executor, process::Reaper& reaper, Consoles consoles,
              process::IoThread& disk, WorkerGroupConfig config);
  ~WorkerGroup() override;

  void listen(OnExit on_exit, OnWarning on_warning, OnInfo on_info) override;
  void start(const rendezvous::Round& round, int restart_count,
             std::function<void(const std::optional<StartFailure>&)> on_started) override;
  void stop_starting() override;
  void signal_all(int signal) override;
  void kill_all() override;
  void signal_each(int signal) override;
  void signal_one(int local_rank, int signal) override;
  void report_ends() override { ends_.tell_held(); }
  void abandon(int local_rank) override;
  std::vector<RunningWorker> running() const override;
  std::vector<RunningWorker> started() const override;
  void finish_output() override;
  std::string log_path() const override { return config_.log_dir ? config_.log_dir->path() : ""; }
  LogLoss log_loss(const std::string& folder) const override;
  std::string console_loss() const override;
  boost::asio::awaitable<void> consoles_written(MonoTime deadline) override;
  pid_t helper() const override { return warm_ ? warm_->session() : 0; }
  boost::asio::awaitable<void> end_helper() override;
  boost::asio::awaitable<void> remove_empty_log_dir() override;

 private:
  std::vector<process::ProcessSpec> specs_of(const rendezvous::Round& round) const;
  // What an attempt has before its workers are begun.
  struct Prepared {
    int start = 0;  // its number
    AttemptFiles files;
    std::vector<process::Fork> forks;  // for each worker, or none
  };
  bool is_starting(int number) const;
  void files_made(Result<AttemptFiles> files);
  void begin_when_leased(const std::shared_ptr<Prepared>& prepared);
  void begin_all(AttemptFiles files, std::vector<process::Fork> forks);
  Result<void> begin_one(AttemptOutput& output, worker::WorkerEnv env,
                         std::optional<process::Fork> fork);
  Result<process::StartingProcess> begin(const process::ProcessSpec& spec,
                                         std::optional<process::Fork> fork);
  void add(LocalWorker::Parts parts, process::StartingProcess starting);
  void begin_cold(LocalWorker& fork, const Error& error);
  void watch(const std::shared_ptr<LocalWorker>& worker, process::Process process);
  void watch_forks();
  void settle(LocalWorker& worker, bool is_gone);
  void end_start_if_settled();
  void ended(LocalWorker& worker, process::ExitStatus status);
  void tell(WorkerExit exit);
  void output_lost(const Error& error);
  std::string words_on_console() const;
  void listen_to(process::Console& console, StreamRoute WorkerRoutes::*stream);
  void console_lost(const process::Console& console, StreamRoute WorkerRoutes::*stream);
  bool has_own_files() const;
  void look_at_disk();

  boost::asio::any_io_executor executor_;
  process::Reaper& reaper_;
  Consoles consoles_;
  process::IoThread& disk_;
  WorkerGroupConfig config_;
  OnExit on_exit_;
  OnWarning on_warning_;
  std::vector<std::string> log_losses_;  // the first of all, and those of the attempt
  bool was_disk_full_ = false;           // at the end of an attempt
  ErrorFiles error_files_;
  EndReader ends_;
  std::unique_ptr<WarmRestarts> warm_;  // nullptr: each start is cold
  process::IoThread cleaning_;          // nothing is lost that waits for it
  boost::asio::steady_timer forks_timer_;
  boost::asio::steady_timer lease_timer_;
  std::unique_ptr<AttemptStart> start_;  // the one under way; nullptr for none
  int cgroups_made_ = 0;
  int starts_ = 0;                                     // attempts so far
  int restart_count_ = 0;                              // of the current one
  std::vector<std::shared_ptr<LocalWorker>> workers_;  // of the current round, by local rank
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::agent
