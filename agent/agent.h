// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's shell: it waits for something to happen (a worker's pidfd, a signal, a timer, the
// rendezvous), tells the core, and carries out what the core decides.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "agent/decide/config.h"
#include "agent/decide/core.h"
#include "agent/decide/stop_signals.h"
#include "agent/decide/time_account.h"
#include "agent/event_recorder.h"
#include "agent/failure_collector.h"
#include "agent/guardian_watch.h"
#include "agent/hang_monitor.h"
#include "agent/inspection.h"
#include "agent/job_control.h"
#include "agent/leftovers.h"
#include "agent/node_bundle.h"
#include "agent/outside_signals.h"
#include "agent/run_ending.h"
#include "agent/stack_show.h"
#include "agent/stop_reason_file.h"
#include "agent/timeline.h"
#include "agent/vitals_sampler.h"
#include "agent/worker_signals.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"
#include "store/event.h"
#include "store/task_group.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

namespace ddprun::agent {

// What an agent works with.  A test has others (tests/agent/agent_test.cc).
struct AgentParts {
  rendezvous::Handler& rendezvous;
  Workers& workers;
  process::Reaper& reaper;  // of the processes that the agent starts beside its workers
  process::IoThread& disk;  // does what may wait for a disk
  std::shared_ptr<spdlog::logger> logger;
  Sweep sweep;
  std::function<Now()> clock;  // for what the core decides
};

// Threads: used from the executor's thread only; the executor must not run on more than one.
// Lifetime: borrows its parts.  run() must have completed before the destructor runs.
class Agent {
 public:
  Agent(boost::asio::any_io_executor executor, AgentConfig config, AgentParts parts);
  ~Agent();
  Agent(const Agent&) = delete;

  // Runs the job to its end and returns the agent's exit code.  When it completes, no process that
  // this agent started is left, but for those the kernel does not let go (named in the log).
  // To be called once.
  boost::asio::awaitable<int> run();

  // The signal that has asked for the end of the run; 0 for none.
  int shutdown_signal() const { return state_.shutdown_signal; }
  // When it came, by the monotonic clock.
  MonoTime shutdown_at() const { return state_.asked_at; }

  // A signal that came when the run was over, while run() still had something to do; 0 for none.
  int late_signal() const { return stop_signals_.late(); }

 private:
  int exit_code() const;
  Duration grace() const;
  void on(const Event& event);
  void perform(const std::vector<Action>& actions);
  void arm_deadline();
  void stop_signalled(int signal);
  void forward_signalled(int signal);
  boost::asio::awaitable<void> join_later(Duration delay);
  void heard(const rendezvous::Notice& notice);
  void stop_ordered(const rendezvous::command::Stop& stop);
  void run_ended(const rendezvous::command::End& end);
  void inspect_ordered(const rendezvous::command::Inspect& inspect);
  std::string log_path_of_failures() const;
  boost::asio::awaitable<void> sweep();
  boost::asio::awaitable<void> keep_dumps();
  void start_workers(int restart_count);
  void workers_started(const std::optional<Workers::StartFailure>& failure);
  boost::asio::awaitable<void> prepare_restart();
  void worker_exited(const WorkerExit& exit);
  std::optional<rendezvous::TimedOutWait> wait_behind(const WorkerExit& exit) const;
  void abandon(const RunningWorker& worker);
  void abandon_hung(const RunningWorker& worker);
  boost::asio::awaitable<void> finish(int exit_code);

  boost::asio::any_io_executor executor_;
  AgentConfig config_;
  rendezvous::Handler& rendezvous_;
  Workers& workers_;
  process::IoThread& disk_;
  std::shared_ptr<spdlog::logger> logger_;
  decltype(AgentParts::clock) clock_;
  State state_;
  store::TaskGroup tasks_;
  FailureCollector failures_;
  HangMonitor hangs_;
  Inspection inspection_;
  StackShow stack_show_;
  NodeBundle bundle_;
  VitalsSampler vitals_;
  EventRecorder events_;
  Timeline timeline_;
  OutsideSignals signals_;
  JobControl job_control_;
  // The scheduler has signalled another node, so it may signal this one's workers, too.
  bool others_are_signalled_ = false;
  boost::asio::steady_timer deadline_timer_;
  store::Event finished_;    // by finish()
  rendezvous::Round round_;  // the current one
  int attempt_ = -1;         // that of the workers started last
  WallTime attempt_began_{};
  Leftovers leftovers_;
  GuardianWatch guardian_;
  StopSignals stop_signals_;
  StopReasonFile stop_file_;  // says in the stop file why the workers are told to end
  WorkerSignals worker_signals_;
  RunEnding ending_;
  TimeKeeper time_;
  MonoTime stop_began_{};  // when the first worker of the round ended, or a stop began
  MonoTime last_exit_{};   // when the last worker to end did
  int exit_code_ = 0;
};

}  // namespace ddprun::agent
