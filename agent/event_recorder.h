// SPDX-License-Identifier: BSD-3-Clause
//
// Writes an event for every change of state of this node's workers and of their agent, with how
// long it took.  agent/report/events has the form.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/events.h"
#include "agent/workers.h"
#include "rendezvous/handler.h"

namespace ddprun::agent {

// Threads: any one at a time.
class EventRecorder {
 public:
  using Sink = std::function<void(std::string_view line)>;

  // `sink` gets each line; nullptr: nothing is recorded.
  EventRecorder(Sink sink, EventContext context) : sink_(std::move(sink)), context_(context) {}

  void joining(Now now);
  void joined(const rendezvous::Round& round, Now now);
  void started(const std::vector<RunningWorker>& workers, Now now);
  // `is_victim`: it ended after the failure that decided the attempt.
  void ended(const WorkerExit& exit, bool is_victim, Now now);
  void finished(int exit_code, const std::string& why, Now now);

 private:
  void write(EventFacts facts, Now now);
  EventWorker worker(int rank, int local_rank, int pid) const;

  Sink sink_;
  EventContext context_;
  MonoTime run_began_{};
  MonoTime join_began_{};
  MonoTime workers_began_{};
  int role_base_rank_ = 0;
};

}  // namespace ddprun::agent
