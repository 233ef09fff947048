// SPDX-License-Identifier: BSD-3-Clause
#include "agent/run_ending.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "agent/attempt_files.h"
#include "agent/report/advice.h"
#include "agent/report/time_text.h"
#include "agent/report_writer.h"
#include "store/clock.h"

namespace ddprun::agent {

namespace asio = boost::asio;

RunEnding::RunEnding(const AgentConfig& config, Parts parts)
    : config_(config), parts_(std::move(parts)) {}

// What a signal has ended is no loss.
void RunEnding::stopped(const rendezvous::command::Stop& stop) {
  bool is_loss = stop.cause == rendezvous::RoundEndCause::NodeLost && stop.signal == 0;
  if (is_loss) outcome_.loss = stop.why;
  if (!stop.failure) return;
  has_round_failed_ = true;
  heard_of_.push_back(*stop.failure);
}

// A host that has followed another one does not know what had failed before.
void RunEnding::add_earlier_failures() {
  std::vector<rendezvous::Failure>& known = outcome_.failures;
  std::vector<rendezvous::Failure> all;
  for (rendezvous::Failure& failure : heard_of_) {
    bool is_known = std::ranges::find(known, failure.restart_count,
                                      &rendezvous::Failure::restart_count) != known.end();
    bool is_earlier = failure.restart_count < outcome_.restart_count;
    if (is_earlier && !is_known) all.push_back(std::move(failure));
  }
  heard_of_.clear();
  std::ranges::move(known, std::back_inserter(all));
  known = std::move(all);
}

void RunEnding::ended(const rendezvous::command::End& end,
                      const std::optional<rendezvous::Failure>& own) {
  outcome_.restart_count = end.restart_count;
  outcome_.why = end.why;
  outcome_.failures = end.failures;
  outcome_.slowest = end.slowest;
  is_by_worker_ = end.exit_code != 0 && end.why.empty() && !outcome_.failures.empty();
  add_earlier_failures();
  if (!is_by_worker_) return;
  rendezvous::Failure& last = outcome_.failures.back();
  is_by_own_worker_ = own && own->pid == last.pid && own->rank == last.rank;
  if (!is_by_own_worker_) return;
  // This node has all of what its worker wrote, and the others know whom it waited for.
  rendezvous::Failure judged = std::exchange(last, *own);
  last.node = std::move(judged.node);
  last.waited_in = std::move(judged.waited_in);
  last.suspects = std::move(judged.suspects);
  last.suspect_count = judged.suspect_count;
  last.ended_before = std::move(judged.ended_before);
  last.also_waited = judged.also_waited;
}

asio::awaitable<int> RunEnding::report(const State& state, int exit_code, int max_restarts,
                                       TimeAccount time) {
  // So that the report knows what a full disk has refused.
  co_await parts_.disk.settled(mono_now() + kDiskPatience);
  co_await parts_.workers.consoles_written(mono_now() + kDiskPatience);
  bool is_stopped = state.shutdown_signal != 0 && exit_code == 128 + state.shutdown_signal;
  int agents_code = exit_code_in(config_.exit_codes, exit_code, outcome_);
  const auto& outside = parts_.stop_file.reason();
  if (outside && outside->cause != worker::StopCause::Signal) outcome_.outside = outside->words;
  std::string line = closing_line(state, config_.core, outcome_, exit_code);
  parts_.events.finished(exit_code, line, read_clocks());
  co_await parts_.workers.remove_empty_log_dir();
  // Where nobody asked for logs, and nothing failed, the disk is left alone.
  bool has_folder = config_.workers.has_log_dir &&
                    (!config_.workers.has_late_folders || !outcome_.failures.empty());
  if (exit_code == 0 && has_folder) {
    // What the disk refuses is said before.
    ReportWriter(parts_.disk, parts_.logger)
        .write(make_report(state, agents_code, max_restarts, is_stopped, time));
    co_await parts_.disk.settled(mono_now() + kDiskPatience);
  }
  LogLoss loss = parts_.workers.log_loss("");
  if ((exit_code == 0 || is_stopped) && !loss.empty())
    parts_.logger->warn("the log files in {} {}", parts_.workers.log_path(), loss.words());
  const std::string console_loss = parts_.workers.console_loss();
  if ((exit_code == 0 || is_stopped) && !console_loss.empty())
    parts_.logger->warn("{}", console_loss);
  if (exit_code == 0) {
    parts_.logger->info("{}", line);
    say_time(time);
    co_return agents_code;
  }
  if (is_stopped) {
    std::string logs = parts_.workers.log_path();
    parts_.logger->error("{}{}{}", line, logs.empty() ? "" : "  logs=", logs);
    if (!outcome_.loss.empty()) parts_.logger->error("next: {}", step_after_loss(outcome_.loss));
    say_time(time);
  }
  co_await report_failures(state, agents_code, max_restarts, is_stopped, std::move(time));
  co_return agents_code;
}

void RunEnding::say_time(const TimeAccount& time) {
  if (is_worth_a_line(time)) parts_.logger->info("{}", time_line(time));
  std::string connecting = connecting_line(time, config_.workers.could_be_warm);
  if (!connecting.empty()) parts_.logger->info("{}", connecting);
  if (!outcome_.slowest.empty()) parts_.logger->info("{}", outcome_.slowest);
}

// All that is known.
JobReport RunEnding::make_report(const State& state, int exit_code, int max_restarts,
                                 bool is_stopped, TimeAccount time) const {
  JobReport report = parts_.failures.report(outcome_, config_.workers.hostname);
  report.run_id = config_.workers.run_id;
  report.exit_code = exit_code;
  report.max_restarts = max_restarts;
  report.log_path = parts_.workers.log_path();
  report.log_loss =
      parts_.workers.log_loss(report.failures.empty() ? "" : report.failures.back().log_path);
  report.console_loss = parts_.workers.console_loss();
  report.keeps_output = config_.workers.log_dir &&
                        std::ranges::any_of(config_.workers.routes, [](const WorkerRoutes& routes) {
                          return goes_to_file(routes.out) || goes_to_file(routes.err);
                        });
  report.time = std::move(time);
  report.could_be_warm = config_.workers.could_be_warm;
  report.shares_output = config_.shares_output;
  if (report.failures.empty() || report.failures.back().pid != 0) {
    if (report.error.empty()) report.error = state.error;
  }
  if (exit_code == 0) report.error.clear();
  // Of a run that did not find together again the loss is the cause.
  if (!outcome_.loss.empty() && !report.error.empty())
    report.error = outcome_.loss + "; then " + report.error;
  report.loss = outcome_.loss;
  const bool has_missed_end = !outcome_.loss.empty() || !state.error.empty();
  report.had_succeeded_here = exit_code != 0 && has_missed_end && !is_stopped && !is_by_worker_ &&
                              !has_round_failed_ && state.workers_end == WorkersEnd::Succeeded &&
                              report.time->until_training.has_value();
  report.slowest = outcome_.slowest;
  if (is_stopped) report.error = stopped_by(state.shutdown_signal, outcome_);
  if (const auto& outside = parts_.stop_file.reason()) {
    report.outside = {.signal = process::signal_name(parts_.stop_file.signal()),
                      .reason = std::string(worker::to_word(outside->cause)),
                      .words = outside->words};
  }
  return report;
}

// The cause, in full, as the last thing that is said.
asio::awaitable<void> RunEnding::report_failures(const State& state, int exit_code,
                                                 int max_restarts, bool is_stopped,
                                                 TimeAccount time) {
  // A failure that no node is left to judge stands before the end all the same.
  if (state.failure && outcome_.failures.empty()) outcome_.failures.push_back(*state.failure);
  JobReport report = make_report(state, exit_code, max_restarts, is_stopped, std::move(time));
  ReportWriter writer(parts_.disk, parts_.logger);
  writer.write(report);
  if (is_by_own_worker_ && !is_stopped)
    writer.pass_up(config_.error_file, parts_.failures.error_report(), describe(*state.failure),
                   exit_code);
  else if (!report.error.empty())
    writer.pass_up(config_.error_file, {}, report.error, exit_code);
  // What the disk refuses is said before.
  co_await parts_.disk.settled(mono_now() + kDiskPatience);
  if (!is_stopped) parts_.logger->error("{}", fmt::join(to_lines(report), "\n"));
}

}  // namespace ddprun::agent
