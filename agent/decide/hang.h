// SPDX-License-Identifier: BSD-3-Clause
//
// How a worker that hangs is ended: step() takes what is known of the local workers, one thing that
// has happened, and the time; it returns what is known now and what must be done.  Workers hang by
// their silence (agent/decide/activity) or by a timer of torch's that has expired.  Pure;
// agent/hang_monitor carries the actions out.
//
//   silent   ─► take stacks ─► clear: end it
//                           └► not clear, on several nodes: leave it to the others for a while
//   expired  ─► take stacks ─► end it
//
// To end a worker: a signal, five seconds later SIGKILL, ten seconds later it is abandoned.  Where
// no tool of the machine shows Python's stacks, all workers get SIGABRT at once, upon which
// Python's faulthandler writes them.  The ends of all are held back meanwhile, so that the one that
// hung comes first, as the failure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/decide/activity.h"
#include "store/base/time.h"

namespace ddprun::agent::hang {

struct Config {
  Duration timeout{};                                // silence that is a hang; zero: any is allowed
  Duration kill_limit = std::chrono::seconds(10);    // that SIGKILL may take to end a worker
  Duration abort_grace = std::chrono::seconds(5);    // from the signal to SIGKILL
  Duration stack_limit = std::chrono::seconds(30);   // that stacks may take, here and elsewhere
  Duration disk_patience = std::chrono::seconds(5);  // beyond that, for making and reading files
};

// A worker that is being ended.
struct Ending {
  MonoTime due{};          // of SIGKILL; then of giving it up
  bool is_killed = false;  // by SIGKILL
};

// The ends of all workers are held back.
struct Hold {
  int local_rank = 0;  // of the worker that hung
  MonoTime until{};    // not longer for the others
};

struct State {
  explicit State(const Config& config) : activity(config.timeout) {}

  std::set<int> running;  // local ranks of the workers that are watched
  int base_rank = 0;
  bool has_other_nodes = false;
  ActivityLog activity;
  std::optional<MonoTime> look_at;  // when the next Looked is due

  std::optional<HangVerdict> suspicion;  // of silence
  std::optional<MonoTime> others_until;  // the suspicion is left to the other nodes until then
  std::map<int, int> expired;            // by local rank: the signal, once stacks are taken
  std::set<int> blamed;

  std::uint64_t collections = 0;  // TakeStacks so far
  bool is_taking = false;         // the last of them is under way
  MonoTime taking_since{};
  std::map<int, bool> waits;  // by local rank, of the last stacks: whether it waits for its peers
  std::map<int, std::string> places;  // likewise, as StacksTaken says them
  bool has_python = false;            // likewise, as StacksTaken says it

  std::map<int, Ending> endings;  // by local rank
  std::optional<Hold> hold;
};

// What can happen.
namespace event {
// The workers of an attempt run, with these local ranks.  What was before is forgotten.
struct Started {
  std::set<int> local_ranks;
  int base_rank = 0;             // the rank of local rank 0
  bool has_other_nodes = false;  // their peers run on other nodes too, whose agents watch them
};
// A sample of each worker that is watched, all of this moment.
struct Looked {
  std::vector<ActivitySample> samples;
};
// A worker's own timer has expired, and it wants to be ended by `signal`.
struct TimerExpired {
  int local_rank = 0;
  int signal = 0;
  std::string cause;
};
// The answer to TakeStacks.  It may not come, where the disk stands still.
struct StacksTaken {
  std::uint64_t collection = 0;
  std::map<int, bool>
      waits;  // by local rank, where the stacks tell: whether it waits for its peers
  std::map<int, std::string> places{};  // likewise: "load (data.py:40)"
  bool has_python = false;              // a tool of this machine shows Python's stacks
};
struct Exited {
  int local_rank = 0;
};
// The workers are being stopped: none is judged any more.
struct Stopped {};
// A time of next_tick() has come.
struct Tick {};
}  // namespace event
using Event = std::variant<event::Started, event::Looked, event::TimerExpired, event::StacksTaken,
                           event::Exited, event::Stopped, event::Tick>;

// What is to be done, in the order given.
namespace action {
// Tell the user of each worker in verdict.silent.
struct NameSilent {
  HangVerdict verdict;
};
// Tell the user that other nodes have so long to find the worker that hangs.
struct LeaveToOthers {
  Duration grace{};
};
// Collect the stacks of all workers that run; StacksTaken follows.
struct TakeStacks {
  std::uint64_t collection = 0;
};
// When this worker fails, `cause` says why; its last sign of life, if it was silent.
struct Blame {
  int local_rank = 0;
  std::string cause;
  std::optional<MonoTime> alive_at{};
};
// Send `signal` to the worker, which may be stopped.
struct Signal {
  int local_rank = 0;
  int signal = 0;
};
// SIGKILL.
struct Kill {
  int local_rank = 0;
};
// SIGKILL has not ended this worker: forget it.
struct Abandon {
  int local_rank = 0;
};
// In answer to Exited: keep this end until Release.
struct HoldBack {};
// Hand on the ends that were held back, that of this worker first.
struct Release {
  int first = 0;
};
}  // namespace action
using Action =
    std::variant<action::NameSilent, action::LeaveToOthers, action::TakeStacks, action::Blame,
                 action::Signal, action::Kill, action::Abandon, action::HoldBack, action::Release>;

// Changes `state` and says what is to be done.
[[nodiscard]] std::vector<Action> step(State& state, const Event& event, MonoTime now,
                                       const Config& config);

// When a Tick is due; nullopt for never.
std::optional<MonoTime> next_tick(const State& state, const Config& config);

std::string to_string(const std::vector<Action>& actions);

}  // namespace ddprun::agent::hang
