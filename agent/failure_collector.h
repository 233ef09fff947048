// SPDX-License-Identifier: BSD-3-Clause
//
// What this node knows about the ends of its workers: it hears them one after another, asks the
// kernel, and keeps what the report at the end wants to know.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/report/job_report.h"
#include "agent/report/report.h"
#include "agent/worker_group.h"
#include "store/base/time.h"
#include "worker/process/oom_watch.h"

namespace ddprun::agent {

// Threads: any one at a time.
class Witness {
 public:
  explicit Witness(std::set<int> no_restart_codes)
      : no_restart_codes_(std::move(no_restart_codes)) {}

  // The workers of an attempt run from now on.
  void attempt_started(int attempt, MonoTime now);

  struct Finding {
    std::string message;         // in one line, for every node; empty where nothing is known
    std::string why_no_restart;  // empty where a restart may help
  };

  // The first failure of the attempt.  `hang_cause`: what the hang watch says of it, or "".
  Finding first_failure(const WorkerExit& exit, const std::string& hang_cause, MonoTime now);

  // A worker that has ended well while the others ran on.
  void ended_well(const WorkerExit& exit) { finished_.push_back(exit.rank); }

  // A worker that ended while the others were being stopped, `is_by_abort`: by SIGABRT.
  void ended_after(const WorkerExit& exit, bool is_by_abort);

  // A process that SIGKILL does not end, as a sentence.
  void saw_stuck(std::string what) { stuck_.push_back(std::move(what)); }

  // How long the next restart has to wait, for the attempts before have died young.
  Duration delay_of_restart() const;

  // The report on the run's failures, in all nodes' order; `is_own`: whether the last of them is
  // the one that first_failure() was told of last.
  JobReport report(const Story& story, bool is_own, const std::string& node) const;

  // The end of what it said, at most kWordsBytes, and whether that is a traceback.
  std::pair<std::string, bool> last_words() const;

  // The log folder of the worker in the last first_failure(); empty where it has none.
  const std::string& folder() const { return last_.folder; }

  // The error file of the last first_failure().
  const worker::ErrorReport& error_report() const { return last_.words.report; }

 private:
  std::set<int> no_restart_codes_;
  process::OomWatch oom_;
  int attempt_ = 0;
  MonoTime started_at_{};
  int young_deaths_ = 0;  // in a row
  WorkerExit last_;       // that of first_failure()
  std::vector<Victim> victims_;
  std::vector<int> finished_;  // ranks
  std::vector<std::string> stuck_;
};

}  // namespace ddprun::agent
