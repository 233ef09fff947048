// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/job_report.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "agent/decide/core.h"
#include "agent/decide/rank_text.h"
#include "agent/report/advice.h"
#include "agent/report/report.h"
#include "agent/report/time_text.h"
#include "rendezvous/decide/messages.h"
#include "store/base/text.h"

namespace ddprun::agent {
namespace {

constexpr std::size_t kLastWords = 14;     // lines of a traceback or of stderr
constexpr std::size_t kWordsOfVictim = 8;  // of a worker that waited for others
constexpr std::size_t kAttemptsShown = 5;  // the first ones and the last

// The tail: the exception's own line is the last one.
void add_last_words(const rendezvous::Failure& failure, std::size_t most,
                    std::vector<std::string>& lines) {
  bool has_traceback = !failure.traceback.empty();
  std::vector<std::string> words =
      lines_of(has_traceback ? failure.traceback : failure.stderr_tail);
  if (words.empty()) return;
  std::size_t shown = std::min(words.size(), most);
  std::string whose =
      failure.suspects.empty() ? "its" : "rank " + std::to_string(failure.rank) + "'s";
  std::string title = has_traceback ? "  traceback" : "  last lines of " + whose + " stderr";
  if (shown < words.size()) title += " (the last " + std::to_string(shown) + " lines)";
  lines.push_back(title + ":");
  for (std::size_t i = words.size() - shown; i < words.size(); ++i)
    lines.push_back("    " + std::string(last_state_of(words[i])));
}

bool is_elsewhere(const rendezvous::Failure& failure, const JobReport& report) {
  return !failure.node.empty() && failure.node != report.node;
}

std::string words_on_connecting(const JobReport& report) {
  return report.time ? connecting_line(*report.time, report.could_be_warm) : "";
}

// Where the failed worker's logs lie, or else the run's; "" for nowhere.
std::string logs_of(const JobReport& report) {
  if (!is_by_worker(report)) return report.log_path;
  const rendezvous::Failure& last = report.failures.back();
  return is_elsewhere(last, report) || !last.log_path.empty() ? last.log_path : report.log_path;
}

// Whether the log file that misses lines is another one than those that the report names.
bool is_loss_apart(const JobReport& report) {
  if (report.log_loss.empty()) return false;
  if (is_by_worker(report) && is_elsewhere(report.failures.back(), report)) return true;
  return report.log_loss.why.find(logs_of(report) + "/") == std::string::npos;
}

// So many that the report keeps to its limit.
std::size_t words_shown(const JobReport& report) {
  const rendezvous::Failure& last = report.failures.back();
  std::size_t most = last.waited_in.empty() ? kLastWords : kWordsOfVictim;
  if (!report.dumps.empty()) --most;
  if (!words_on_connecting(report).empty()) --most;
  if (!report.slowest.empty()) --most;
  if (is_loss_apart(report)) --most;
  if (!report.console_loss.empty()) --most;
  return most;
}

std::string also_failed(const Victim& victim) {
  return "rank " + std::to_string(victim.rank) + " " + process::to_string(victim.status);
}

// A rank that leaves early is why its peers fail, often enough.
std::string had_finished(const std::vector<int>& ranks) {
  return "had ended with exit code 0 before that: " + name_ranks(ranks);
}

constexpr std::string_view kHadSucceeded =
    "  the workers of this node had all succeeded: the run may have ended well on the others";

// One line for all that we stopped, one for those that fell by themselves.
void add_victims(const std::vector<Victim>& victims, std::vector<std::string>& lines) {
  std::vector<int> stopped;
  std::string fallen;
  std::size_t fallen_count = 0;
  for (const Victim& victim : victims) {
    if (victim.is_stopped_by_us) {
      stopped.push_back(victim.rank);
    } else if (++fallen_count <= kAttemptsShown) {
      fallen += (fallen.empty() ? "" : "; ") + also_failed(victim);
    }
  }
  if (fallen_count > kAttemptsShown)
    fallen += "; and " + std::to_string(fallen_count - kAttemptsShown) + " more";
  if (!fallen.empty()) lines.push_back("  after that, as its victims: " + fallen);
  if (!stopped.empty()) lines.push_back("  then stopped by ddprun: " + name_ranks(stopped));
}

std::string ranks_text(int count) {
  return std::to_string(count) + (count == 1 ? " other rank" : " other ranks");
}

// Of a worker that waited in vain: who else did.
void add_waiting(const rendezvous::Failure& failure, std::vector<std::string>& lines) {
  if (failure.waited_in.empty()) return;
  std::string others = ranks_text(failure.also_waited);
  if (failure.suspects.empty()) {
    lines.push_back("  whom it waited for is not known: " +
                    (failure.also_waited > 0 ? others + " waited in vain, too"
                                             : "no stack shows a rank that is elsewhere"));
  } else if (failure.also_waited > 0) {
    lines.push_back("  its victims, too: " + others + " waited in vain");
  }
}

// The failures that came before the end.
void add_attempts(const JobReport& report, std::vector<std::string>& lines) {
  std::size_t count = report.failures.size() - (is_by_worker(report) ? 1 : 0);
  if (count == 0) return;
  lines.push_back(is_by_worker(report)
                      ? "  failures before, each followed by a restart (" + std::to_string(count) +
                            " of --max-restarts=" + std::to_string(report.max_restarts) + "):"
                      : "  failures of workers before that:");
  for (std::size_t i = 0; i < count; ++i) {
    if (count > kAttemptsShown && i == kAttemptsShown - 1) {
      lines.push_back("    ... " + std::to_string(count - kAttemptsShown) + " more ...");
      i = count - 1;
    }
    lines.push_back("    attempt " + std::to_string(report.failures[i].restart_count) + ": " +
                    describe(report.failures[i]));
  }
}

void add_logs(const JobReport& report, std::vector<std::string>& lines) {
  bool is_apart = is_loss_apart(report);
  if (is_apart) lines.push_back("  the logs on this node " + report.log_loss.words());
  if (!report.console_loss.empty()) lines.push_back("  console: " + report.console_loss);
  std::string logs = logs_of(report);
  if (logs.empty()) return;
  if (is_by_worker(report) && is_elsewhere(report.failures.back(), report))
    logs += " on " + report.failures.back().node;
  bool is_lossy = !report.log_loss.empty() && !is_apart;
  lines.push_back("  logs: " + logs + (is_lossy ? ", which " + report.log_loss.words() : ""));
}

// What the exit code of this agent says, where it is not simply the worker's own.
std::string words_on(const JobReport& report) {
  std::string code = std::to_string(report.exit_code);
  bool is_by_start = is_by_worker(report) && report.failures.back().pid == 0;
  if (is_by_worker(report) && !is_by_start &&
      report.exit_code == report.failures.back().status.shell_code())
    return code + ", the worker's own";
  switch (report.exit_code) {
    case rendezvous::command::kExitPreflight:
      return code + (is_by_worker(report) ? "" : ", a node lacks what its workers need");
    case kExitRendezvous:
      return code + ", the rendezvous failed";
    case kExitInfrastructure:
      return code + ", this machine lacks what a worker needs to start";
    case kExitNotExecutable:
      return code + (is_by_start ? ", the program cannot be executed" : "");
    case kExitCannotStart:
      return code + (is_by_start ? ", there is no such program" : "");
    case kExitBudgetSpent:
      return code + (report.max_restarts == 1
                         ? ", the one restart is spent"
                         : ", all " + std::to_string(report.max_restarts) + " restarts are spent");
    default:
      return code;
  }
}

std::string and_more(std::size_t more) {
  return more > 0 ? " (and " + std::to_string(more) + " more in report.json)" : "";
}

// No other node knows it.
void add_what_is_of_this_node(const JobReport& report, std::vector<std::string>& lines) {
  if (report.outside) {
    bool says_signal = report.outside->words.find(report.outside->signal) != std::string::npos;
    lines.push_back("  signalled from outside: " +
                    (says_signal ? "" : report.outside->signal + ", ") + report.outside->words);
  }
  if (!report.stuck.empty())
    lines.push_back("  left behind: " + report.stuck.front() + and_more(report.stuck.size() - 1));
  if (!report.dumps.empty()) {
    lines.push_back("  flight recorder: " + report.dumps.back() +
                    and_more(report.dumps.size() - 1) + "; torchfrtrace reads it");
  }
}

// Where another node's report stands in the same place.
std::vector<std::string> to_short_lines(const JobReport& report) {
  const rendezvous::Failure& last = report.failures.back();
  std::vector<std::string> lines = {"FAILED: " + describe(last)};
  add_what_is_of_this_node(report, lines);
  if (!report.log_loss.empty()) lines.push_back("  the logs here " + report.log_loss.words());
  if (!report.console_loss.empty()) lines.push_back("  console: " + report.console_loss);
  lines.push_back("  exit code: " + words_on(report) + "; the report is that of " + last.node);
  return lines;
}

std::vector<std::string> to_long_lines(const JobReport& report) {
  std::vector<std::string> lines;
  if (is_by_worker(report)) {
    const rendezvous::Failure& last = report.failures.back();
    lines.push_back("FAILED: " + describe(last));
    add_last_words(last, words_shown(report), lines);
    add_waiting(last, lines);
    std::vector<int> finished = ended_before(report);
    if (!finished.empty()) lines.push_back("  " + had_finished(finished));
    add_victims(report.victims, lines);
  } else {
    lines.push_back("FAILED: " + report.error);
    if (report.had_succeeded_here) lines.emplace_back(kHadSucceeded);
  }
  add_attempts(report, lines);
  if (std::string again = stragglers(report.failures); !again.empty())
    lines.push_back("  again and again: " + again);
  add_what_is_of_this_node(report, lines);
  add_logs(report, lines);
  if (report.time && is_worth_a_line(*report.time))
    lines.push_back("  time: " + time_line(*report.time));
  std::string connecting = words_on_connecting(report);
  if (!connecting.empty()) lines.push_back("  restarts: " + connecting);
  if (!report.slowest.empty()) lines.push_back("  pace: " + report.slowest);
  lines.push_back("  exit code: " + words_on(report));
  std::string next = next_step(report);
  if (!next.empty()) lines.push_back("  next: " + next);
  return lines;
}

}  // namespace

std::vector<int> ended_before(const JobReport& report) {
  constexpr int kMostOfANode = 1024;
  std::set<int> ranks(report.finished.begin(), report.finished.end());
  if (report.failures.empty()) return {ranks.begin(), ranks.end()};
  for (const rendezvous::RankRange& range : report.failures.back().ended_before) {
    for (int i = 0; i < std::min(range.count, kMostOfANode); ++i) ranks.insert(range.first + i);
  }
  return {ranks.begin(), ranks.end()};
}

bool is_by_worker(const JobReport& report) {
  return report.exit_code != 0 && report.error.empty() && !report.failures.empty();
}

std::vector<std::string> to_lines(const JobReport& report) {
  bool is_told_there =
      report.shares_output && is_by_worker(report) && is_elsewhere(report.failures.back(), report);
  std::vector<std::string> lines = is_told_there ? to_short_lines(report) : to_long_lines(report);
  for (std::string& line : lines) line = cut(printable(line, true), kReportColumns);
  return lines;
}

}  // namespace ddprun::agent
