// SPDX-License-Identifier: BSD-3-Clause
#include "agent/agent.h"

#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "agent/log_dir.h"
#include "store/base/check.h"
#include "store/base/variant.h"
#include "worker/process/sweep.h"

namespace ddprun::agent {
namespace {

namespace asio = boost::asio;

Now now() {
  return {std::chrono::steady_clock::now(), std::chrono::system_clock::now()};
}

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// `nohup ddprun …` ignores SIGHUP for us and for the workers, and it stays so.  (A shell script
// also ignores SIGINT for what it starts with '&'; that one is handled all the same, as torchrun
// does.)
bool is_protected_from(int signal) {
  struct sigaction current = {};
  return signal == SIGHUP && ::sigaction(signal, nullptr, &current) == 0 &&
         current.sa_handler == SIG_IGN;
}

// What travels between nodes, and what this agent knows of its own workers, differ in the types of
// their times and statuses only.
rendezvous::Failure to_message(const Failure& failure) {
  return {.rank = failure.rank,
          .local_rank = failure.local_rank,
          .pid = failure.pid,
          .exit_code = failure.status.exit_code,
          .signal = failure.status.signal,
          .core_dumped = failure.status.core_dumped,
          .message = failure.message,
          .logs = failure.logs,
          .attempt = failure.attempt};
}
Failure from_message(const rendezvous::Failure& failure) {
  return {.rank = failure.rank,
          .local_rank = failure.local_rank,
          .pid = failure.pid,
          .status = {.exit_code = failure.exit_code,
                     .signal = failure.signal,
                     .core_dumped = failure.core_dumped},
          .message = failure.message,
          .attempt = failure.attempt,
          .host = failure.host,
          .logs = failure.logs};
}

}  // namespace

Agent::Agent(asio::any_io_executor executor, AgentConfig config, rendezvous::Handler& rendezvous,
             Consoles consoles, std::shared_ptr<spdlog::logger> logger)
    : executor_(executor),
      config_(std::move(config)),
      rendezvous_(rendezvous),
      logger_(std::move(logger)),
      reaper_(executor),
      workers_(
          executor, reaper_, consoles, config_.workers,
          [this](const WorkerExit& exit) { worker_exited(exit); },
          [this](const std::string& warning) { logger_->warn("{}", warning); }),
      tasks_(executor, [](std::exception_ptr error) { std::rethrow_exception(error); }),
      signals_(executor),
      job_control_(executor, [this](int signal) { workers_.signal_all(signal); }),
      deadline_timer_(executor),
      finished_(executor, MonoTime::max()) {}

Agent::~Agent() = default;

asio::awaitable<int> Agent::run() {
  for (int signal : config_.stop_signals) {
    if (!is_protected_from(signal)) signals_.add(signal);
  }
  wait_for_signal();
  if (std::ranges::count(config_.stop_signals, SIGTSTP) == 0) job_control_.start();
  Result<void> subreaper = process::Reaper::become_subreaper();
  if (!subreaper) {
    logger_->warn("orphans of workers cannot be ended: {}", to_string(subreaper.error()));
  }

  rendezvous_.listen([this](const rendezvous::Notice& notice) { heard(notice); });
  story_.took_part = false;
  Step first = begin();
  state_ = std::move(first.state);
  perform(first.actions);
  if (state_.phase != Phase::Finished) {
    co_await finished_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_await rendezvous_.finish();
  rendezvous_.close();
  signals_.cancel();
  job_control_.stop();
  tasks_.cancel();
  co_await tasks_.join();
  co_return exit_code_;
}

// The loop's body: one event in, its actions out, one line about it.
void Agent::on(const Event& event) {
  Phase before = state_.phase;
  Step next = step(std::move(state_), event, now(), config_.core);
  state_ = std::move(next.state);
  logger_->debug("{}: {} -> {}: {}", to_string(event), to_string(before), to_string(state_.phase),
                 to_string(next.actions));
  if (before == Phase::Running && state_.phase == Phase::Stopping) stop_began_ = now().mono;
  arm_deadline();
  perform(next.actions);
}

void Agent::perform(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    std::visit(
        Overloaded{
            [this](const action::JoinRound&) { rendezvous_.join(); },
            [this](const action::ReportFailure& report) { report_failure(report); },
            [this](const action::ReportSuccess&) { rendezvous_.report_success(); },
            [this](const action::LeaveRun& leave) {
              rendezvous_.leave("was stopped by " + process::signal_name(leave.signal));
            },
            [this](const action::StartWorkers& start) { start_workers(start.restart_count); },
            [this](const action::SignalWorkers& signal) { workers_.signal_all(signal.signal); },
            [this](const action::Sweep& wanted) {
              sweep_deadline_ = wanted.deadline;
              tasks_.spawn(sweep());
            },
            [this](const action::KillNow&) {
              workers_.signal_all(SIGKILL);
              sweep_deadline_ = now().mono;
            },
            [this](const action::Finish& end) { finish(end.exit_code); },
        },
        action);
  }
}

void Agent::arm_deadline() {
  deadline_timer_.cancel();
  if (!state_.deadline) return;
  deadline_timer_.expires_at(*state_.deadline);
  deadline_timer_.async_wait([this](boost::system::error_code error) {
    if (error || !state_.deadline || now().mono < *state_.deadline) return;  // disarmed meanwhile
    if (state_.running > 0) {
      logger_->warn("{} of the workers still run after the grace; they get SIGKILL",
                    state_.running);
    }
    on(event::DeadlineReached{});
  });
}

void Agent::wait_for_signal() {
  signals_.async_wait([this](boost::system::error_code error, int signal) {
    if (error) return;
    logger_->warn("received {}; {}", process::signal_name(signal),
                  state_.phase == Phase::Running    ? "stopping the workers"
                  : state_.phase == Phase::Stopping ? "already stopping"
                                                    : "ending");
    on(event::ShutdownRequested{signal});
    wait_for_signal();
  });
}

void Agent::heard(const rendezvous::Notice& notice) {
  std::visit(Overloaded{
                 [this](const rendezvous::Round& round) {
                   if (state_.phase != Phase::Joining) return;  // a shutdown overtook the join
                   round_ = round;
                   on(event::RoundJoined{round.restart_count});
                 },
                 [this](const rendezvous::order::Stop& stop) { stop_ordered(stop); },
                 [this](const rendezvous::order::End& end) { run_ended(end); },
                 [this](const rendezvous::notice::Failed& failed) {
                   if (state_.failure) logger_->error("{}", describe(*state_.failure));
                   logger_->error("{}", failed.why);
                   on(event::RendezvousFailed{failed.why});
                 },
                 [this](const rendezvous::notice::Told& told) { logger_->info("{}", told.text); },
             },
             notice);
}

void Agent::stop_ordered(const rendezvous::order::Stop& stop) {
  std::string fields = fmt::format("round={} attempt={}", stop.round, round_.restart_count);
  if (stop.failure) {
    logger_->error("{}; {}{}  {}", describe(from_message(*stop.failure)),
                   stopping(state_.running, state_.failure.has_value(), config_.core),
                   restart_of(stop.restart_count, stop.max_restarts), fields);
  } else {
    logger_->warn("{}; {}another round  {}", stop.why,
                  stopping(state_.running, state_.failure.has_value(), config_.core), fields);
  }
  on(event::StopOrdered{});
}

void Agent::run_ended(const rendezvous::order::End& end) {
  story_.restart_count = end.restart_count;
  story_.why = end.why;
  story_.failures.clear();
  for (const rendezvous::Failure& failure : end.failures) {
    story_.failures.push_back(from_message(failure));
  }
  bool is_by_worker = end.exit_code != 0 && end.why.empty() && !story_.failures.empty();
  if (is_by_worker) {
    const Failure& last = story_.failures.back();
    ends_by_own_failure_ =
        state_.failure && state_.failure->pid == last.pid && state_.failure->rank == last.rank;
    // A program that cannot be started is told at the end, in full.
    if (last.pid != 0) {
      logger_->error("{}; {}{}  round={} attempt={}", describe(last),
                     stopping(state_.running, ends_by_own_failure_, config_.core),
                     why_no_restart(end.max_restarts), round_.number, end.restart_count);
    }
  }
  on(event::RunEnded{end.exit_code});
}

void Agent::report_failure(const action::ReportFailure& report) {
  rendezvous::Failure failure;
  if (state_.failure) {
    failure = to_message(*state_.failure);
  } else {
    failure = {.rank = round_.ranks.base_rank + state_.running,
               .local_rank = state_.running,
               .exit_code = report.exit_code,
               .message = state_.error,
               .attempt = state_.restart_count};
  }
  failure.logs = workers_.log_path();
  rendezvous_.report_failure(std::move(failure), report.exit_code, report.is_final);
}

void Agent::start_workers(int restart_count) {
  auto failure = workers_.start(round_, restart_count);
  if (failure) {
    on(event::StartFailed{.started = failure->started, .why = failure->why});
    return;
  }
  std::string who = describe_workers(round_.ranks.base_rank, config_.core.local_world_size,
                                     round_.ranks.world_size);
  std::string fields = fmt::format("round={} attempt={} master={}", round_.number, restart_count,
                                   to_string(round_.master));
  story_.took_part = true;
  int previous_attempt = std::exchange(attempt_, restart_count);
  if (previous_attempt < 0) {
    logger_->info("started {}  {}", who, fields);
    return;
  }
  // Both parts of a restart, each by this line's own clock: how long the workers took to go, and
  // how long it took from there to the last exec.
  logger_->info(
      "{}: started {}, {:.1f} ms after the last of the workers before had ended "
      "(stopping them took {:.1f} ms)  {}",
      restart_count > previous_attempt ? restart_of(restart_count, round_.max_restarts)
                                       : fmt::format("round {}", round_.number),
      who, milliseconds(now().mono - last_exit_), milliseconds(last_exit_ - stop_began_), fields);
}

void Agent::worker_exited(const WorkerExit& exit) {
  last_exit_ = now().mono;
  on(event::WorkerExited{.local_rank = exit.local_rank,
                         .status = exit.status,
                         .rank = exit.rank,
                         .pid = exit.pid,
                         .message = exit.message});
}

asio::awaitable<void> Agent::sweep() {
  process::SweepResult result =
      co_await process::sweep(reaper_, sweep_deadline_, config_.guardian_pid);
  workers_.finish_output();
  if (!result.found.empty()) {
    logger_->warn("ended what the workers had left behind: {}", process::to_string(result.found));
  }
  if (!result.stuck.empty()) {
    logger_->error("these processes do not end, not even by SIGKILL; going on without them: {}",
                   process::to_string(result.stuck));
  }
  on(event::Swept{});
}

void Agent::finish(int exit_code) {
  check(state_.phase == Phase::Finished, "finished before the end");
  exit_code_ = exit_code;
  std::string line = closing_line(state_, config_.core, story_, exit_code);
  workers_.remove_empty_log_dir();
  if (exit_code == 0) {
    logger_->info("{}", line);
  } else if (workers_.log_path().empty()) {
    logger_->error("{}", line);
  } else {
    logger_->error("{}  logs={}", line, workers_.log_path());
  }
  if (ends_by_own_failure_ && state_.shutdown_signal == 0) tell_cause(exit_code);
  finished_.cancel();
}

// What the failed worker itself had to say: its traceback, else the end of its stderr.
void Agent::tell_cause(int exit_code) {
  const Failure& failure = *state_.failure;
  LastWords words = workers_.last_words(failure.attempt, failure.local_rank);
  if (!words.report.traceback.empty()) {
    logger_->error("traceback of rank {}:\n{}", failure.rank, words.report.traceback);
  } else if (!words.stderr_lines.empty()) {
    logger_->error("the last lines of rank {}'s stderr ({}):\n{}", failure.rank, words.stderr_path,
                   fmt::join(words.stderr_lines, "\n"));
  }
  if (config_.error_file.empty()) return;
  if (words.report.message.empty()) words.report.message = describe(failure);
  if (words.report.timestamp == 0) {
    auto since_epoch = now().wall.time_since_epoch();
    words.report.timestamp = std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
  }
  Result<void> written =
      write_file(config_.error_file, worker::to_error_file(words.report, exit_code));
  if (!written)
    logger_->warn("the cause could not be told to the launcher above: {}",
                  to_string(written.error()));
}

}  // namespace ddprun::agent
