// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/report.h"

#include <chrono>
#include <csignal>
#include <utility>

#include "rendezvous/decide/findings.h"
#include "store/base/count.h"

namespace ddprun::agent {
namespace {

// " after 2 restarts (rank 1 was killed by SIGKILL; rank 0 exited with code 9)", or nothing.  Of
// many causes the first ones are told.
std::string restarts_so_far(const RunOutcome& outcome) {
  constexpr int kMostTold = 5;
  if (outcome.restart_count == 0) return "";
  std::string causes;
  int count = 0;
  for (const rendezvous::Failure& failure : outcome.failures) {
    if (failure.restart_count >= outcome.restart_count) continue;  // led to no restart
    if (++count <= kMostTold) causes += (causes.empty() ? "" : "; ") + describe_briefly(failure);
  }
  if (count > kMostTold) causes += "; and " + std::to_string(count - kMostTold) + " more";
  std::string again = stragglers(outcome.failures);
  return " after " + count_of(outcome.restart_count, "restart") +
         (causes.empty() ? "" : " (" + causes + ")") + (again.empty() ? "" : "; " + again);
}

std::string time_left(Duration left) {
  auto seconds = std::chrono::ceil<std::chrono::seconds>(left).count();
  return seconds <= 0 ? "at once" : "at most " + std::to_string(seconds) + " s";
}

}  // namespace

std::string stragglers(const std::vector<rendezvous::Failure>& failures) {
  constexpr std::size_t kMostNamed = 3;
  std::vector<rendezvous::KeptWaiting> again = rendezvous::kept_waiting_again(failures);
  if (again.size() > kMostNamed) again.resize(kMostNamed);
  std::string text;
  for (const rendezvous::KeptWaiting& each : again) {
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(each.rank) +
            (each.node.empty() ? "" : " on " + each.node) + " " + describe(each);
  }
  return text;
}

std::string describe_workers(int base_rank, int count, int world_size) {
  std::string ranks = "rank " + std::to_string(base_rank);
  if (count > 1)
    ranks = "ranks " + std::to_string(base_rank) + ".." + std::to_string(base_rank + count - 1);
  return count_of(count, "worker") + ", " + ranks + " of " + std::to_string(world_size);
}

std::string stopping(int running, bool is_own_failure, Duration grace) {
  if (running == 0) return "";
  std::string whom = is_own_failure ? "the other " : "";
  whom += is_own_failure && running == 1 ? "worker" : count_of(running, "worker");
  return "stopping " + whom + " (" + time_left(grace) + "), then ";
}

std::string effect_of_stop(const State& state, const Config& config, int signal, Duration grace,
                           MonoTime now) {
  const bool is_repeated = config.is_sigterm_repeated && signal == SIGTERM;
  const std::string and_another = is_repeated ? "" : "; a second signal: SIGKILL";
  switch (state.phase) {
    case Phase::Running:
    case Phase::Inspecting:
      return "stopping the workers (" + time_left(grace) + and_another + ")";
    case Phase::Stopping:
      break;
    case Phase::Joining:
    case Phase::Waiting:
    case Phase::Finished:
      return "ending";
  }
  if (state.is_killed) return "what still runs has got SIGKILL";
  const bool is_second = state.shutdown_signal != 0;
  if (is_second && !is_repeated && now - state.asked_at >= kOneRequest)
    return "SIGKILL to what still runs";
  std::string left = state.deadline ? time_left(*state.deadline - now) : "";
  std::string more =
      is_second && !is_repeated ? "; one that comes a second later: SIGKILL" : and_another;
  return "already stopping (" + left + more + ")";
}

std::string restart_of(int restart_count, int max_restarts) {
  return "restart " + std::to_string(restart_count) + " of " + std::to_string(max_restarts);
}

std::string why_no_restart(int max_restarts) {
  if (max_restarts == 0) return "the end, since --max-restarts is 0";
  if (max_restarts == 1) return "the end, since the one restart is spent";
  return "the end, since all " + count_of(max_restarts, "restart") + " are spent";
}

int exit_code_in(ExitCodes codes, int exit_code, const RunOutcome& outcome) {
  if (exit_code == 0) return 0;
  if (codes == ExitCodes::Torchrun) return 1;
  bool is_spent = exit_code == kExitBudgetSpent && outcome.why.empty() && !outcome.failures.empty();
  return codes == ExitCodes::Worker && is_spent ? outcome.failures.back().status.shell_code()
                                                : exit_code;
}

std::string stopped_by(int signal, const RunOutcome& outcome) {
  return "stopped by " + process::signal_name(signal) +
         (outcome.outside.empty() ? "" : ": " + outcome.outside) +
         (outcome.loss.empty() ? "" : "; before that " + outcome.loss);
}

std::string closing_line(const State& state, const Config& config, const RunOutcome& outcome,
                         int exit_code) {
  std::string code = ", exit code " + std::to_string(exit_code);
  if (exit_code == 0) {
    if (!outcome.took_part) {
      return "finished: " + (outcome.why.empty()
                                 ? "the run has succeeded, and this node was not needed"
                                 : outcome.why);
    }
    if (state.workers_end != WorkersEnd::Succeeded) {
      return "finished: " + (outcome.why.empty() ? "the run has succeeded" : outcome.why) +
             "; this node's workers have not";
    }
    return "finished: " + count_of(config.local_world_size, "worker") + " succeeded" +
           restarts_so_far(outcome);
  }
  if (state.shutdown_signal != 0 && exit_code == 128 + state.shutdown_signal) {
    return stopped_by(state.shutdown_signal, outcome) + restarts_so_far(outcome) + code;
  }
  if (!state.error.empty()) return "failed: " + state.error + code;
  if (!outcome.why.empty()) return "failed: " + outcome.why + code;
  if (outcome.failures.empty()) return "failed" + code;  // the rendezvous has not said why
  return "failed: " + describe(outcome.failures.back()) + restarts_so_far(outcome) + code;
}

}  // namespace ddprun::agent
