// SPDX-License-Identifier: BSD-3-Clause
#include "agent/failure_collector.h"

#include <algorithm>
#include <chrono>
#include <csignal>

#include "agent/decide/start_failure.h"
#include "agent/decide/wait_words.h"
#include "agent/report/error_line.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::size_t kMostOfDoing = 200;  // bytes

// What the machine lacked for a start may be there then.
constexpr Duration kLackPause = std::chrono::seconds(1);

// By the signal that we sent, or by an exit code that stands for it.
bool is_our_doing(const process::ExitStatus& status, bool is_by_abort) {
  int code = status.shell_code();
  return code == 128 + SIGTERM || code == 128 + SIGKILL || (is_by_abort && code == 128 + SIGABRT);
}

// As many of the last lines as a report shows.
std::string stderr_tail(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : telling_lines(lines, kReportLines)) text += line + "\n";
  return text;
}

}  // namespace

void FailureCollector::round_begins(std::uint64_t round) {
  round_ = round;
  has_start_failed_ = false;
  victims_.clear();
  left_early_.clear();
  seen_before_.clear();
  ended_.clear();
}

rendezvous::Failure FailureCollector::first_failure(const WorkerExit& exit,
                                                    const std::string& hang_cause, MonoTime now) {
  error_report_ = exit.report;
  ended_meanwhile(exit);
  Duration uptime = now - started_at_;
  young_deaths_ = uptime < kYoung ? young_deaths_ + 1 : 0;

  std::string message = hang_cause;
  std::string kernel = oom_.words_on(exit.pid, exit.status.signal == SIGKILL, exit.cgroup);
  if (message.empty() && exit.status.signal != 0) message = kernel;
  if (message.empty()) message = reported_error(exit.report.message, exit.report.traceback);
  if (message.empty()) message = error_line(exit.stderr_lines);
  // First, since what a worker says of it may be long, and is cut.
  if (exit.status.signal == 0 && !kernel.empty())
    message = kernel + (message.empty() ? "" : "; ") + message;

  why_no_restart_ = excluded_from_restart(exit.status, no_restart_codes_).value_or("");
  if (auto unstartable = start_failure(exit, uptime, round_))
    why_no_restart_ = "it could not start: " + *unstartable;
  return {.rank = exit.rank,
          .local_rank = exit.local_rank,
          .pid = exit.pid,
          .status = exit.status,
          .message = std::move(message),
          .log_path = exit.is_folder_empty ? "" : exit.folder,
          .traceback = exit.report.traceback,
          .stderr_tail = stderr_tail(exit.stderr_lines)};
}

void FailureCollector::ended_after(const WorkerExit& exit, bool is_by_abort) {
  if (exit.status.is_success()) return;
  victims_.push_back({.rank = exit.rank,
                      .status = exit.status,
                      .is_stopped_by_us = is_our_doing(exit.status, is_by_abort)});
}

void FailureCollector::ended_well(const WorkerExit& exit) {
  rendezvous::Finding& finding = left_early_.emplace_back();
  finding.rank = exit.rank;
  finding.pid = exit.pid;
  finding.place = rendezvous::Whereabouts::Elsewhere;
  finding.doing = rendezvous::kHadEnded;
}

void FailureCollector::ended_meanwhile(const WorkerExit& exit) {
  std::string words = reported_error(exit.report.message, exit.report.traceback);
  if (words.empty()) words = error_line(exit.stderr_lines);
  std::string how = process::to_string(exit.status) + (words.empty() ? "" : ": " + words);
  ended_.push_back({.view = {.rank = exit.rank, .pid = exit.pid, .timed_out = timed_out_wait(exit)},
                    .lost_peer = lost_peer(exit),
                    .how = cut(how.substr(0, how.find('\n')), kMostOfDoing),
                    .is_success = exit.status.is_success()});
}

rendezvous::Finding FailureCollector::finding_of_end(const Ended& ended) const {
  WorkerView view = ended.view;
  // Who has lost a peer has waited, too; it knows no more than another that has lost one.
  if (!view.timed_out && !wait_.has_lost_peer) view.timed_out = ended.lost_peer;
  rendezvous::Finding finding = finding_of(view, wait_);
  if (view.timed_out || ended.lost_peer) return finding;
  finding.place = rendezvous::Whereabouts::Elsewhere;
  finding.doing = ended.is_success ? rendezvous::kHadEnded : ended.how;
  return finding;
}

rendezvous::Findings FailureCollector::with_ended(rendezvous::Findings findings) const {
  auto add = [&findings](const rendezvous::Finding& one) {
    bool is_known = std::ranges::find(findings.workers, one.rank, &rendezvous::Finding::rank) !=
                    findings.workers.end();
    if (!is_known) findings.workers.push_back(one);
  };
  std::ranges::for_each(left_early_, add);
  for (const Ended& ended : ended_) add(finding_of_end(ended));
  std::ranges::for_each(seen_before_, add);
  limit(findings);
  return findings;
}

Duration FailureCollector::delay_of_restart() const {
  return std::max(restart_delay(young_deaths_), has_start_failed_ ? kLackPause : Duration::zero());
}

std::string FailureCollector::why_delayed() const {
  return has_start_failed_ ? "this machine lacked what a worker needs to start"
                           : "the workers have died young too often";
}

JobReport FailureCollector::report(const RunOutcome& outcome, const std::string& node) const {
  JobReport report{.node = node,
                   .failures = outcome.failures,
                   .victims = victims_,
                   .stuck = stuck_,
                   .dumps = dumps_,
                   .error = outcome.why};
  for (const rendezvous::Finding& finding : left_early_) report.finished.push_back(finding.rank);
  for (rendezvous::Failure& failure : report.failures) {
    if (failure.node.empty()) failure.node = node;
  }
  return report;
}

}  // namespace ddprun::agent
