// SPDX-License-Identifier: BSD-3-Clause
#include "agent/failure_collector.h"

#include <csignal>

#include "agent/decide/start_failure.h"
#include "agent/report/error_line.h"

namespace ddprun::agent {
namespace {

constexpr std::size_t kWordsBytes = 4 * 1024;  // of a traceback, on its way to the other nodes

// By the signal that we sent, or by an exit code that stands for it.
bool is_our_doing(const process::ExitStatus& status, bool is_by_abort) {
  int code = status.shell_code();
  return code == 128 + SIGTERM || code == 128 + SIGKILL || (is_by_abort && code == 128 + SIGABRT);
}

FailureFacts facts_of(const Failure& failure, const std::string& node) {
  FailureFacts facts{.node = failure.host.empty() ? node : failure.host,
                     .rank = failure.rank,
                     .local_rank = failure.local_rank,
                     .pid = failure.pid,
                     .status = failure.status,
                     .attempt = failure.attempt,
                     .at = failure.seen_at,
                     .log_path = failure.logs};
  if (failure.is_traceback) {
    facts.traceback = failure.words;
  } else {
    facts.stderr_lines = lines_of(failure.words);
  }
  (failure.status.signal != 0 ? facts.cause : facts.message) = failure.message;
  return facts;
}

}  // namespace

void Witness::attempt_started(int attempt, MonoTime now) {
  attempt_ = attempt;
  started_at_ = now;
  victims_.clear();
  finished_.clear();
}

Witness::Finding Witness::first_failure(const WorkerExit& exit, const std::string& hang_cause,
                                        MonoTime now) {
  last_ = exit;
  const worker::ErrorReport& report = exit.words.report;
  Duration uptime = now - started_at_;
  young_deaths_ = uptime < kYoung ? young_deaths_ + 1 : 0;

  Finding finding{.message = hang_cause};
  std::string kernel = oom_.words_on(exit.pid, exit.status.signal == SIGKILL, exit.cgroup);
  if (finding.message.empty() && exit.status.signal != 0) finding.message = kernel;
  if (finding.message.empty()) finding.message = report.message;
  if (finding.message.empty()) finding.message = telling_line(exit.words.stderr_lines);
  if (exit.status.signal == 0 && !kernel.empty())
    finding.message += (finding.message.empty() ? "" : "; ") + kernel;

  auto excluded = excluded_from_restart(exit.status, no_restart_codes_);
  auto unstartable = start_failure({.status = exit.status,
                                    .uptime = uptime,
                                    .attempt = attempt_,
                                    .message = report.message,
                                    .stderr_lines = exit.words.stderr_lines});
  if (excluded) finding.why_no_restart = *excluded;
  if (unstartable) finding.why_no_restart = "it could not start: " + *unstartable;
  return finding;
}

void Witness::ended_after(const WorkerExit& exit, bool is_by_abort) {
  if (exit.status.is_success()) return;
  victims_.push_back({.rank = exit.rank,
                      .status = exit.status,
                      .is_stopped_by_us = is_our_doing(exit.status, is_by_abort)});
}

std::pair<std::string, bool> Witness::last_words() const {
  const worker::ErrorReport& report = last_.words.report;
  bool is_traceback = !report.traceback.empty();
  std::string words = report.traceback;
  if (!is_traceback) {
    for (const std::string& line : last_.words.stderr_lines) words += line + "\n";
  }
  if (words.size() <= kWordsBytes) return {words, is_traceback};
  words.erase(0, words.size() - kWordsBytes);
  std::size_t line_end = words.find('\n');
  if (line_end + 1 < words.size()) words.erase(0, line_end + 1);  // else it is one long line
  return {words, is_traceback};
}

Duration Witness::delay_of_restart() const {
  return restart_delay(young_deaths_);
}

JobReport Witness::report(const Story& story, bool is_own, const std::string& node) const {
  JobReport report{.node = node,
                   .victims = victims_,
                   .finished = finished_,
                   .stuck = stuck_,
                   .error = story.why};
  for (const Failure& failure : story.failures) report.failures.push_back(facts_of(failure, node));
  if (!is_own || report.failures.empty()) return report;
  FailureFacts& last = report.failures.back();
  last.traceback = last_.words.report.traceback;
  last.stderr_lines = last_.words.stderr_lines;
  if (last.stderr_lines.size() > kReportLines)
    last.stderr_lines.erase(last.stderr_lines.begin(), last.stderr_lines.end() - kReportLines);
  if (!last_.folder.empty()) last.log_path = last_.folder;
  return report;
}

}  // namespace ddprun::agent
