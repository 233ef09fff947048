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

#include "rendezvous/decide/failure.h"
#include "rendezvous/decide/findings.h"
#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::agent {

// Signals within this time are one request: timeout(1) signals its child and then their group,
// wrappers pass on a Ctrl-C that the terminal has sent to all, and a person presses it twice.
inline constexpr Duration kOneRequest = std::chrono::seconds(1);

struct Config {
  int local_world_size = 1;
  Duration stop_grace = std::chrono::seconds(30);  // from SIGTERM to SIGKILL, on every path
  Duration kill_limit = std::chrono::seconds(10);  // that a worker may take to end by SIGKILL
  // How long the workers run on after a wait that was over, until the rendezvous has judged it.
  Duration inspect_limit = std::chrono::seconds(4);
  // The scheduler sends SIGTERM more than once, and SIGKILL when the job's grace is over.  The time
  // in between is the workers'.
  bool is_sigterm_repeated = false;
};

enum class Phase : std::uint8_t {
  Joining,  // no worker runs; a round has been asked for
  Running,  // workers run
  // They run on while it is seen what they do: a worker, here or elsewhere, has waited in vain.
  Inspecting,
  Stopping,  // workers, or what they have left behind, are being ended
  Waiting,   // all is down, and the rendezvous has not said yet what follows
  Finished,
};

// Why the workers are being brought down, or have ended.
enum class WorkersEnd : std::uint8_t {
  Succeeded,          // they have all ended well
  WorkerFailed,       // one of them has not
  StartFailed,        // not all of them could be started
  Ordered,            // the rendezvous wants it
  ShutdownRequested,  // a signal came
};

// What the rendezvous wants once the workers of the round are down.
enum class Verdict : std::uint8_t { None, NextRound, End };

struct State {
  Phase phase = Phase::Joining;
  WorkersEnd workers_end = WorkersEnd::Succeeded;  // in Stopping and Waiting
  Verdict verdict = Verdict::None;                 // of the current round
  int exit_code = 0;                               // with Verdict::End
  int shutdown_signal = 0;                         // with WorkersEnd::ShutdownRequested
  MonoTime asked_at{};                             // when that came
  int running = 0;                                 // local workers not yet known to have ended
  bool is_killed = false;                          // in Stopping: they have had SIGKILL
  int restart_count = 0;                           // failures that the run has survived
  std::optional<rendezvous::Failure> failure;      // of a worker in the current round, on this node
  bool owes_findings = false;                      // in Inspecting: the rendezvous waits for them
  std::string error;                 // why the run cannot go on, where no worker failed
  std::optional<MonoTime> deadline;  // when DeadlineReached is due
  std::optional<MonoTime> kill_by;   // where the lease of the workers ends sooner than their grace
};

// What can happen to an agent.
namespace event {
struct RoundJoined {
  int restart_count = 0;
};
// The rendezvous is gone, and with it the run.
struct RendezvousFailed {
  std::string why;
};
// The workers of the current round are to be stopped; another round follows.
struct StopOrdered {};
// The run is over.
struct RunEnded {
  int exit_code = 0;
};
// A worker of another node has waited in vain for others: its verdict follows when it is known what
// the workers here do.
struct InspectOrdered {
  rendezvous::TimedOutWait wait;
};
// The answer to TakeStacks.
struct Inspected {
  rendezvous::Findings findings;
};
// Of the local workers only `started` were started; `failure.message` says why.  During a stop
// there may be several of these events, each with all others as `started`.
struct StartFailed {
  int started = 0;
  rendezvous::Failure failure;  // with the run's exit code: of a program, or kExitInfrastructure
  bool is_final = true;         // a restart would fail the same way
};
struct WorkerExited {
  int local_rank = 0;
  std::optional<rendezvous::Failure> failure{};  // nothing: it has succeeded
  bool is_final = false;                         // a restart would fail the same way
  // It hung: the others are to show their stacks, and end by SIGABRT, which makes Python do that.
  bool is_hang = false;
  // It has failed since others did not come in time.
  std::optional<rendezvous::TimedOutWait> wait{};
};
// After Sweep: nothing that the workers left behind lives any more.
struct Swept {};
struct DeadlineReached {};
// Comes just before a StopOrdered or a RendezvousFailed: the workers must be dead by then, whatever
// their grace, since the others begin another round.
struct LeaseEnding {
  MonoTime kill_by{};
};
struct ShutdownRequested {
  int signal = 0;
};
}  // namespace event
using Event = std::variant<event::RoundJoined, event::RendezvousFailed, event::StopOrdered,
                           event::RunEnded, event::InspectOrdered, event::Inspected,
                           event::StartFailed, event::WorkerExited, event::Swept,
                           event::DeadlineReached, event::LeaseEnding, event::ShutdownRequested>;

// What an agent can ask of its shell, to be done in the order given.
namespace action {
struct JoinRound {};
// Tell the rendezvous; the run ends with the failure's exit code, should this be its end.
struct ReportFailure {
  rendezvous::Failure failure;
  bool is_final = false;                           // a restart would fail the same way
  std::optional<rendezvous::TimedOutWait> wait{};  // before its verdict: ReportFindings
};
// See what the workers do, within about a second, for a wait that was over; Inspected follows.
// None is stopped meanwhile.
struct TakeStacks {
  rendezvous::TimedOutWait wait;
};
// Tell the rendezvous, which waits for it.
struct ReportFindings {
  rendezvous::Findings findings;
};
struct ReportSuccess {};
struct LeaveRun {
  int signal = 0;
};
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
// Workers that SIGKILL does not end (in D state): name them, and forget them.  What they may still
// do, such as end after all, is no event any more.
struct AbandonWorkers {};
struct Finish {
  int exit_code = 0;
};
}  // namespace action
using Action = std::variant<action::JoinRound, action::ReportFailure, action::TakeStacks,
                            action::ReportFindings, action::ReportSuccess, action::LeaveRun,
                            action::StartWorkers, action::SignalWorkers, action::Sweep,
                            action::KillNow, action::AbandonWorkers, action::Finish>;

struct Step {
  State state;
  std::vector<Action> actions;
};

// The first step of a run.
[[nodiscard]] Step begin();

[[nodiscard]] Step step(State state, const Event& event, Now now, const Config& config);

// Exit codes of the agent beside a worker's own (agent/STATES.md).
using rendezvous::command::kExitBudgetSpent;    // 82
using rendezvous::command::kExitRendezvous;     // 80
inline constexpr int kExitInfrastructure = 81;  // this machine refuses what a worker needs to start
inline constexpr int kExitNotExecutable = 126;  // a worker's program, as in a shell
inline constexpr int kExitCannotStart = 127;    // there is none, as in a shell

std::string to_string(Phase phase);
std::string to_string(const Event& event);
std::string to_string(const std::vector<Action>& actions);

}  // namespace ddprun::agent
