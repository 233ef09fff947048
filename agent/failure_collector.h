// SPDX-License-Identifier: BSD-3-Clause
//
// Collects what is known of failures on this node: from the ends of its workers and from the kernel
// it makes the record of a failure, and it keeps what the report at the end needs beside that.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/decide/whereabouts.h"
#include "agent/decide/worker_exit.h"
#include "agent/report/job_report.h"
#include "agent/report/report.h"
#include "rendezvous/decide/failure.h"
#include "rendezvous/decide/findings.h"
#include "store/base/time.h"
#include "worker/process/oom_watch.h"

namespace ddprun::agent {

// Threads: any one at a time.
class FailureCollector {
 public:
  explicit FailureCollector(std::set<int> no_restart_codes)
      : no_restart_codes_(std::move(no_restart_codes)) {}

  // The workers of a round are about to be started: those of the round before are forgotten.
  void round_begins(std::uint64_t round);
  // They run from now on.
  void workers_run(MonoTime now) { started_at_ = now; }

  // The first failure of the attempt, with all that is known of it but its time and its restart
  // count.  `hang_cause`: what the hang watch says of it, or "".
  rendezvous::Failure first_failure(const WorkerExit& exit, const std::string& hang_cause,
                                    MonoTime now);

  // The round's workers could not all be started.
  void start_failed() { has_start_failed_ = true; }

  // Why a restart would fail as that one has; empty where one may help.
  const std::string& why_no_restart() const { return why_no_restart_; }

  // A worker that has ended well while the others ran on.
  void ended_well(const WorkerExit& exit);
  // Others want to know what the workers do, since `wait` was over.
  void asked(rendezvous::TimedOutWait wait) { wait_ = std::move(wait); }
  // What was known of workers before the first failure made them end.
  void saw_before(std::vector<rendezvous::Finding> findings) { seen_before_ = std::move(findings); }
  // A worker that ends while that is found out.
  void ended_meanwhile(const WorkerExit& exit);
  // What this node has to say of a wait that was over: `findings` of the workers that run, and
  // those that have ended, for whom others may wait in vain.
  rendezvous::Findings with_ended(rendezvous::Findings findings) const;

  // A worker that ended while the others were being stopped, `is_by_abort`: by SIGABRT.
  void ended_after(const WorkerExit& exit, bool is_by_abort);

  // A process that SIGKILL does not end, as a sentence.
  void saw_stuck(std::string what) { stuck_.push_back(std::move(what)); }

  // Copies of the flight recorder's dumps of an attempt.
  void saw_dumps(const std::vector<std::string>& paths) {
    dumps_.insert(dumps_.end(), paths.begin(), paths.end());
  }

  // How long the next restart has to wait, for the attempts before have died young.
  Duration delay_of_restart() const;
  std::string why_delayed() const;

  // The report on the run's failures, in all nodes' order, and on what happened on this `node`.
  JobReport report(const RunOutcome& outcome, const std::string& node) const;

  // The error file of the last first_failure().
  const worker::ErrorReport& error_report() const { return error_report_; }

 private:
  std::set<int> no_restart_codes_;
  process::OomWatch oom_;
  std::uint64_t round_ = 0;
  MonoTime started_at_{};
  int young_deaths_ = 0;              // in a row
  bool has_start_failed_ = false;     // in this round
  worker::ErrorReport error_report_;  // of the last first_failure()
  std::string why_no_restart_;        // likewise
  std::vector<Victim> victims_;
  std::vector<rendezvous::Finding> left_early_;
  rendezvous::TimedOutWait wait_;
  std::vector<rendezvous::Finding> seen_before_;
  // That have ended by themselves: the first failure, and those that followed while it was judged.
  struct Ended {
    WorkerView view;
    std::optional<rendezvous::TimedOutWait> lost_peer;
    std::string how;  // "exited with code 1: ValueError: boom"
    bool is_success = false;
  };
  rendezvous::Finding finding_of_end(const Ended& ended) const;
  std::vector<Ended> ended_;
  std::vector<std::string> stuck_;
  std::vector<std::string> dumps_;
};

}  // namespace ddprun::agent
