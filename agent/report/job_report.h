// SPDX-License-Identifier: BSD-3-Clause
//
// What a person is told when a job has failed: the cause, first and plainly, and what to do next.
// Pure: facts in, lines and JSON out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/log_loss.h"
#include "agent/decide/time_account.h"
#include "rendezvous/decide/failure.h"
#include "store/base/exit_status.h"

namespace ddprun::agent {

// A worker that ended, other than with success, after the failure that decided the attempt.
struct Victim {
  int rank = 0;
  process::ExitStatus status;
  bool is_stopped_by_us = false;  // by the signal that we had sent, or by our SIGKILL
};

// A signal that came to this node's agent from outside the run.
struct OutsideSignal {
  std::string signal;  // "SIGUSR1"
  std::string reason;  // worker/stop_reason.h's word: "preempted"
  std::string words;   // "the time of job 12 is over"
};

struct JobReport {
  std::string run_id;
  std::string node;  // this agent's host name
  int exit_code = 1;
  int max_restarts = 0;
  // At most one a restart count, in the order they were decided.
  std::vector<rendezvous::Failure> failures;
  std::vector<Victim> victims;       // of the last attempt, on this node
  std::vector<int> finished;         // its ranks on this node that had ended well before that
  std::vector<std::string> stuck;    // what not even SIGKILL has ended, a sentence each
  std::vector<std::string> dumps{};  // of NCCL's flight recorder, of all attempts on this node
  std::string error;                 // why the job cannot go on, where no worker is the reason
  std::string loss{};                // of a node, for which the run has waited in vain
  // Whether all workers of this node had succeeded, where the others' end was not heard.
  bool had_succeeded_here = false;
  std::string slowest{};                   // the slowest worker, a sentence; empty: none was
  std::string log_path;                    // the run's log folder on this node; empty: none
  LogLoss log_loss{};                      // of a log file here that is not whole
  std::string console_loss{};              // what a console of this agent misses, and why
  bool keeps_output = true;                // log files have what workers print, or some of it
  std::optional<OutsideSignal> outside{};  // the last one
  std::optional<TimeAccount> time{};       // where this node's time has gone
  bool could_be_warm = false;              // its restarts: --warm-restarts was not given
  // Its nodes write to one place, as those of a Slurm step: what a worker has said is told once, by
  // its own node.
  bool shares_output = false;
};

// All of a report fits into this many lines.
inline constexpr std::size_t kReportLines = 32;
inline constexpr std::size_t kReportColumns = 400;  // a longer line is cut

// The report, one entry a line, without line ends.  The first line says what failed.  What workers
// have said is quoted, as printable() does, but for tabs.
std::vector<std::string> to_lines(const JobReport& report);

// The ranks that had ended with exit code 0 before the last of `failures`, as far as is known here:
// some of this node, and all of nodes whose workers had ended.
std::vector<int> ended_before(const JobReport& report);

// Whether the last of `failures` is why the job has failed.
bool is_by_worker(const JobReport& report);

// The same as a JSON document, the text of report.json.  Its form is in agent/REPORT.md.
std::string to_json(const JobReport& report);

}  // namespace ddprun::agent
