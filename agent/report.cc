// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report.h"

#include <chrono>

namespace ddprun::agent {
namespace {

std::string count_of(int count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

constexpr std::size_t kMessageBytes = 200;  // of a worker's own message, in one line

// "exited with code 1: ValueError: boom".
std::string how_it_ended(const Failure& failure) {
  std::string text = process::to_string(failure.status);
  std::string first_line = failure.message.substr(0, failure.message.find('\n'));
  if (first_line.size() > kMessageBytes) first_line = first_line.substr(0, kMessageBytes) + "...";
  return first_line.empty() ? text : text + ": " + first_line;
}

// " after 2 restarts (rank 1 was killed by SIGKILL; rank 0 exited with code 9)", or nothing.
std::string restarts_so_far(const State& state) {
  if (state.restart_count == 0) return "";
  std::string causes;
  for (const Failure& failure : state.failures) {
    if (failure.attempt >= state.restart_count) continue;  // led to no restart
    causes += (causes.empty() ? "" : "; ") + ("rank " + std::to_string(failure.rank) + " ") +
              how_it_ended(failure);
  }
  return " after " + count_of(state.restart_count, "restart") + " (" + causes + ")";
}

}  // namespace

std::string describe_workers(int base_rank, int count, int world_size) {
  std::string ranks = "rank " + std::to_string(base_rank);
  if (count > 1)
    ranks = "ranks " + std::to_string(base_rank) + ".." + std::to_string(base_rank + count - 1);
  return count_of(count, "worker") + ", " + ranks + " of " + std::to_string(world_size);
}

std::string describe(const Failure& failure) {
  return "rank " + std::to_string(failure.rank) + " (local rank " +
         std::to_string(failure.local_rank) + ", pid " + std::to_string(failure.pid) + ") " +
         how_it_ended(failure);
}

std::string what_follows(const State& state, const Config& config) {
  std::string text;
  if (state.running > 0) {
    auto grace = std::chrono::duration_cast<std::chrono::seconds>(config.stop_grace).count();
    text = "stopping the other " +
           (state.running == 1 ? "worker" : count_of(state.running, "worker")) + " (at most " +
           std::to_string(grace) + " s), then ";
  }
  if (state.restart_count < config.max_restarts) {
    return text + "restart " + std::to_string(state.restart_count + 1) + " of " +
           std::to_string(config.max_restarts);
  }
  if (config.max_restarts == 0) return text + "the end, since --max-restarts is 0";
  return text + "the end, since all " + count_of(config.max_restarts, "restart") + " are spent";
}

std::string closing_line(const State& state, const Config& config, int exit_code) {
  std::string code = ", exit code " + std::to_string(exit_code);
  if (exit_code == 0) {
    return "finished: " + count_of(config.local_world_size, "worker") + " succeeded" +
           restarts_so_far(state);
  }
  if (state.shutdown_signal != 0 && exit_code == 128 + state.shutdown_signal) {
    return "stopped by " + process::signal_name(state.shutdown_signal) + restarts_so_far(state) +
           code;
  }
  if (!state.error.empty()) return "failed: " + state.error + code;
  return "failed: " + describe(state.failures.back()) + restarts_so_far(state) + code;
}

}  // namespace ddprun::agent
