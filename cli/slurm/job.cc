// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm/job.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "agent/decide/scheduler.h"
#include "store/base/number.h"

namespace ddprun::cli {
namespace {

using worker::StopCause;
using worker::StopReason;

// Slurm's clock is read in whole seconds, and another machine's.
constexpr Duration kClockSlack = std::chrono::seconds(2);

// The value of " Key=Value" in one line of such; empty where there is none.
std::string_view field(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1)) {
    bool is_begin = at == 0 || line[at - 1] == ' ';
    std::string_view rest = line.substr(at + key.size());
    if (!is_begin || !rest.starts_with('=')) continue;
    rest.remove_prefix(1);
    return rest.substr(0, rest.find_first_of(" \n"));
  }
  return {};
}

std::optional<WallTime> time_field(std::string_view line, std::string_view key) {
  auto seconds = number_in<std::int64_t>(field(line, key));
  if (!seconds) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds));
}

std::optional<int> seconds_until(const std::optional<WallTime>& end, WallTime now) {
  if (!end) return std::nullopt;
  auto left = std::chrono::duration_cast<std::chrono::seconds>(*end - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

// By the time limit alone.
StopReason by_end(int signal, bool is_stop, const std::string& job,
                  const std::optional<WallTime>& end, WallTime now) {
  std::optional<int> left = seconds_until(end, now);
  if (end && is_stop && now + kClockSlack >= *end)
    return {StopCause::TimeLimit, "the time of job " + job + " is over", 0};
  if (end && !is_stop && now + kNearTimeLimit >= *end) {
    return {StopCause::TimeLimit,
            "the time of job " + job + " is over in " + std::to_string(*left) + " s", left};
  }
  StopReason plain = agent::plain_reason_of({.signal = signal, .is_stop = is_stop});
  plain.seconds_left = left;
  return plain;
}

// A job that is about to be signalled is SIGNALING for a moment, and there are more such states.
bool is_ending(std::string_view state) {
  constexpr std::array<std::string_view, 9> kEnds = {
      "COMPLETING", "CANCELLED", "TIMEOUT",  "NODE_FAIL",     "PREEMPTED",
      "PENDING",    "REQUEUED",  "DEADLINE", "OUT_OF_MEMORY",
  };
  return std::ranges::find(kEnds, state) != kEnds.end();
}

StopReason of_ending_job(const SlurmJob& job, std::string_view answer) {
  std::string name = "job " + job.id;
  std::string_view state = field(answer, "JobState");
  std::string_view reason = field(answer, "Reason");
  std::string_view preempted = field(answer, "PreemptTime");
  bool is_restarted = number_in<int>(field(answer, "Restarts")).value_or(0) > job.restart_count;
  bool is_smaller =
      number_in<int>(field(answer, "NumNodes")).value_or(job.node_count) < job.node_count;
  if (reason == "TimeLimit" || state == "TIMEOUT")
    return {StopCause::TimeLimit, "the time of " + name + " is over", std::nullopt};
  if (reason == "NodeDown" || state == "NODE_FAIL" || (is_restarted && is_smaller))
    return {StopCause::NodeFailed, "a node of " + name + " has failed", std::nullopt};
  if (state == "PREEMPTED" || number_in<std::int64_t>(preempted))
    return {StopCause::Preempted, "Slurm has preempted " + name, std::nullopt};
  if (is_restarted) {
    return {StopCause::Requeued,
            "Slurm begins " + name + " again: it was requeued, or preempted without a grace",
            std::nullopt};
  }
  return {StopCause::Cancelled, name + " was cancelled", std::nullopt};
}

}  // namespace

std::optional<SlurmJob> slurm_job(const std::function<std::string(std::string_view)>& variable) {
  std::string id = variable("SLURM_JOB_ID");
  if (!number_in<std::uint32_t>(id)) return std::nullopt;
  auto count = [&](std::string_view name, int otherwise) {
    return number_in<int>(variable(name)).value_or(otherwise);
  };
  SlurmJob job{.id = std::move(id),
               .restart_count = count("SLURM_RESTART_COUNT", 0),
               .node_count = count("SLURM_JOB_NUM_NODES", 1),
               .node = count("SLURM_NODEID", 0),
               .end = std::nullopt};
  if (auto end = number_in<std::int64_t>(variable("SLURM_JOB_END_TIME")))
    job.end = WallTime(std::chrono::seconds(*end));
  return job;
}

StopReason reason_of(int signal, bool is_stop, const SlurmJob* job, WallTime now) {
  if (job == nullptr) return by_end(signal, is_stop, "", std::nullopt, now);
  return by_end(signal, is_stop, job->id, job->end, now);
}

StopReason reason_of(int signal, bool is_stop, const SlurmJob& job, WallTime now,
                     std::string_view answer) {
  std::string_view state = field(answer, "JobState");
  if (state.empty() || field(answer, "JobId") != job.id)
    return reason_of(signal, is_stop, &job, now);
  if (is_ending(state)) return of_ending_job(job, answer);
  std::optional<WallTime> end = time_field(answer, "EndTime");
  if (number_in<std::int64_t>(field(answer, "PreemptTime")))
    return {StopCause::Preempted, "Slurm has preempted job " + job.id, seconds_until(end, now)};
  StopReason reason = by_end(signal, is_stop, job.id, end, now);
  if (reason.cause == StopCause::Signal) reason.words += "; Slurm's job " + job.id + " goes on";
  return reason;
}

std::vector<std::string> question(const SlurmJob& job) {
  return {"-o", "show", "job", job.id};
}

Duration delay_of_question(const SlurmJob& job) {
  return std::chrono::milliseconds(100) * (job.node / 32);
}

}  // namespace ddprun::cli
