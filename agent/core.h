// SPDX-License-Identifier: BSD-3-Clause
//
// The agent's decisions, and nothing else.  step() takes what is known, one thing that has
// happened, and the time it happened at; it returns what is known now and what must be done about
// it.  It opens no socket, starts no process, reads no clock and writes no log line, so a test can
// play a week of failures through it in a millisecond.  agent/agent.h is the shell that carries the
// actions out and reports back; agent/STATES.md is the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "store/base/time.h"
#include "worker/process/exit_status.h"

namespace ddprun::agent {

struct Config {
  int local_world_size = 1;
  int max_restarts = 0;                            // failure restarts that the run may spend
  Duration stop_grace = std::chrono::seconds(30);  // from SIGTERM to SIGKILL, on every path
};

enum class Phase : std::uint8_t { Joining, Running, Stopping, Finished };

// Why the workers are being brought down, or have ended.  It decides what follows once everything
// is down.
enum class StopReason : std::uint8_t { Succeeded, WorkerFailed, StartFailed, ShutdownRequested };

// The first failure of an attempt.  Workers that fail after it are its victims and not recorded:
// their store or their peer has gone, or the agent has stopped them.
struct Failure {
  int rank = 0;
  int local_rank = 0;
  int pid = 0;
  process::ExitStatus status;
  std::string message;  // the worker's own last words, where it left any: "ValueError: boom"
  int attempt = 0;      // the restart count it happened under
  MonoTime at{};
};

struct State {
  Phase phase = Phase::Joining;
  StopReason stop_reason = StopReason::Succeeded;  // in Stopping
  int shutdown_signal = 0;                         // with StopReason::ShutdownRequested
  int running = 0;                                 // local workers not yet known to have ended
  int restart_count = 0;                           // failure restarts spent
  std::vector<Failure> failures;                   // at most one an attempt, in order
  std::string error;                 // why the run cannot go on, where no worker failed
  std::optional<MonoTime> deadline;  // when DeadlineReached is due
};

// What can happen to an agent.
namespace event {
struct RoundJoined {};
struct RendezvousFailed {
  std::string why;
};
// Of the local workers only the first `started` came to be; the next one cannot be started.
struct StartFailed {
  int started = 0;
  std::string why;
};
struct WorkerExited {
  int local_rank = 0;
  process::ExitStatus status;
  int rank = 0;
  int pid = 0;
  std::string message;
};
// After Sweep: nothing that the workers left behind lives any more.
struct Swept {};
struct DeadlineReached {};
struct ShutdownRequested {
  int signal = 0;
};
}  // namespace event
using Event = std::variant<event::RoundJoined, event::RendezvousFailed, event::StartFailed,
                           event::WorkerExited, event::Swept, event::DeadlineReached,
                           event::ShutdownRequested>;

// What an agent can ask of its shell, to be done in the order given.
namespace action {
struct JoinRound {};
// Start all local workers of the round just joined, in the attempt `restart_count`.
struct StartWorkers {
  int restart_count = 0;
};
// Send `signal` to the process group of each worker that still runs.
struct SignalWorkers {
  int signal = 0;
};
// End what the workers left behind: politely until `deadline`, then by SIGKILL.
struct Sweep {
  MonoTime deadline{};
};
// The grace is over: SIGKILL to the workers, and to what a running Sweep still finds.
struct KillNow {};
struct Finish {
  int exit_code = 0;
};
}  // namespace action
using Action = std::variant<action::JoinRound, action::StartWorkers, action::SignalWorkers,
                            action::Sweep, action::KillNow, action::Finish>;

struct Step {
  State state;
  std::vector<Action> actions;
};

// The first step of a run.
[[nodiscard]] Step begin();

[[nodiscard]] Step step(State state, const Event& event, Now now, const Config& config);

// Exit codes of the agent beside a worker's own (agent/STATES.md).
inline constexpr int kExitInfrastructure = 1;  // the rendezvous failed
inline constexpr int kExitCannotStart = 127;  // a worker's program cannot be started, as in a shell

std::string to_string(Phase phase);
std::string to_string(const Event& event);
std::string to_string(const std::vector<Action>& actions);

}  // namespace ddprun::agent
