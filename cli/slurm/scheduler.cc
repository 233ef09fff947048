// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/scheduler.h"

namespace ddprun::cli {
namespace {

agent::SchedulerQuestion question_about(const SlurmJob& job) {
  return {.program = "scontrol",
          .arguments = question(job),
          .environment = {std::string(kTimeFormatVariable) + "=" + kTimeFormat},
          .delay = delay_of_question(job)};
}

}  // namespace

std::optional<agent::Scheduler> slurm_scheduler(const std::optional<SlurmJob>& job,
                                                const std::optional<agent::SignalReach>& reach) {
  if (!job && !reach) return std::nullopt;
  agent::Scheduler scheduler{
      .name = "Slurm",
      .reach = reach.value_or(agent::SignalReach::Agent),
      .sender = "slurmstepd",
      .repeats_sigterm = reach.has_value(),
      .reason_of = [](agent::OutsideRequest request, WallTime, std::string_view) {
        return plain_reason_of(request);
      }};
  if (!job) return scheduler;
  scheduler.question = question_about(*job);
  scheduler.reason_of = [job = *job](agent::OutsideRequest request, WallTime now,
                                     std::string_view answer) {
    return reason_of(request.signal, request.is_stop, job, now, answer);
  };
  return scheduler;
}

}  // namespace ddprun::cli
