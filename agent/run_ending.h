// SPDX-License-Identifier: BSD-3-Clause
//
// How the run ends, as the rendezvous tells it and as this node knows it, and all that is said of
// it at the end: the closing line, the report, and the error file of a launcher above this one.
#pragma once

#include <spdlog/fwd.h>

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "agent/decide/core.h"
#include "agent/decide/time_account.h"
#include "agent/event_recorder.h"
#include "agent/failure_collector.h"
#include "agent/report/report.h"
#include "agent/stop_reason_file.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"
#include "worker/process/io_thread.h"

namespace ddprun::agent {

// Threads: used from the event loop's only thread.
// Lifetime: borrows the configuration and its parts.
class RunEnding {
 public:
  struct Parts {
    Workers& workers;
    process::IoThread& disk;
    const FailureCollector& failures;
    EventRecorder& events;
    const StopReasonFile& stop_file;
    std::shared_ptr<spdlog::logger> logger;
  };
  RunEnding(const AgentConfig& config, Parts parts);

  // A round begins, and no loss of a node keeps the run waiting any more.
  void round_joined() {
    outcome_.loss.clear();
    has_round_failed_ = false;
  }
  // This round is over: a node was lost, and unless another round begins that is the cause.
  void stopped(const rendezvous::command::Stop& stop);
  // There is no round, since a node was lost.
  void waiting(const std::string& why) { outcome_.loss = why; }
  // This node has workers.
  void workers_started() { outcome_.took_part = true; }

  // The verdict.  `own`: the first failure of this node's workers.
  void ended(const rendezvous::command::End& end, const std::optional<rendezvous::Failure>& own);
  // A worker's failure ended the run: on any node, on this one.
  bool is_by_worker() const { return is_by_worker_; }
  bool is_by_own_worker() const { return is_by_own_worker_; }

  // Says all of it and returns the agent's exit code.  The core has finished with `exit_code`.
  // `time`: where that of this node has gone.
  boost::asio::awaitable<int> report(const State& state, int exit_code, int max_restarts,
                                     TimeAccount time);

 private:
  void add_earlier_failures();
  void say_time(const TimeAccount& time);
  JobReport make_report(const State& state, int exit_code, int max_restarts, bool is_stopped,
                        TimeAccount time) const;
  boost::asio::awaitable<void> report_failures(const State& state, int exit_code, int max_restarts,
                                               bool is_stopped, TimeAccount time);

  const AgentConfig& config_;
  Parts parts_;
  RunOutcome outcome_{.took_part = false};
  std::vector<rendezvous::Failure> heard_of_;  // that have led to restarts
  bool is_by_worker_ = false;
  bool is_by_own_worker_ = false;
  bool has_round_failed_ = false;  // the last one, by a worker of any node
};

// How long the end of a round waits for a slow disk to take the rest of the files.  One that works
// takes them in milliseconds, and what stands still for longer may do so for hours.
inline constexpr auto kDiskPatience = std::chrono::seconds(1);

}  // namespace ddprun::agent
