// SPDX-License-Identifier: BSD-3-Clause
#include "agent/event_recorder.h"

#include <utility>

namespace ddprun::agent {

void EventRecorder::joining(Now now) {
  if (run_began_ == MonoTime{}) run_began_ = now.mono;
  join_began_ = now.mono;
}

void EventRecorder::joined(const rendezvous::Round& round, Now now) {
  context_.group_rank = round.ranks.group_rank;
  context_.group_world_size = round.ranks.group_world_size;
  context_.role_world_size = round.ranks.role_world_size;
  context_.restart_count = round.restart_count;
  role_base_rank_ = round.ranks.role_base_rank;
  write({.state = "RENDEZVOUS", .duration = now.mono - join_began_}, now);
}

void EventRecorder::started(const std::vector<RunningWorker>& workers, Now now) {
  workers_began_ = now.mono;
  for (const RunningWorker& one : workers)
    write({.state = "START", .worker = worker(one.rank, one.local_rank, one.pid)}, now);
}

void EventRecorder::ended(const WorkerExit& exit, bool is_victim, Now now) {
  const char* state = exit.status.is_success() ? "SUCCEEDED" : is_victim ? "TERMINATED" : "FAILED";
  EventFacts facts{.state = state,
                   .worker = worker(exit.rank, exit.local_rank, exit.pid),
                   .duration = now.mono - workers_began_,
                   .raw_error = exit.report.message};
  const process::ExitStatus& status = exit.status;
  facts.worker->exit_code = status.signal != 0 ? -status.signal : status.exit_code;
  write(std::move(facts), now);
}

void EventRecorder::finished(int exit_code, const std::string& why, Now now) {
  write({.state = exit_code == 0 ? "SUCCEEDED" : "FAILED",
         .duration = now.mono - run_began_,
         .raw_error = exit_code == 0 ? "" : why},
        now);
}

void EventRecorder::write(EventFacts facts, Now now) {
  if (!sink_) return;
  facts.total_run_time = now.mono - run_began_;
  facts.at = now.wall;
  sink_(to_event_line(context_, facts));
}

EventWorker EventRecorder::worker(int rank, int local_rank, int pid) const {
  return {.rank = rank,
          .local_rank = local_rank,
          .role_rank = role_base_rank_ + local_rank,
          .pid = pid};
}

}  // namespace ddprun::agent
