// SPDX-License-Identifier: BSD-3-Clause
//
// What the workers are told of why they are to stop, or to save: step() takes what is known, one
// thing that has happened and the time, and says what is to be written, asked and logged.  Pure;
// agent/stop_reason_file writes the file and asks the scheduler.
//
//   * Why a run is stopped from outside goes before any reason within the run, whichever comes
//     first: a peer's end is often known here before the signal that ends this node as well.
//   * A specific reason is never replaced by a vaguer one.
//   * A time limit of which a signal has only warned stops nothing yet: until a signal ends this
//     node or another one, a reason within the run goes before it.
//   * The scheduler is asked upon each signal, also one that came to another node: this node may be
//     about to get the same one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agent/decide/scheduler.h"
#include "store/base/time.h"
#include "worker/stop_reason.h"

namespace ddprun::agent::stop_reason {

// So many questions run at a time, and the next begins so long after the last, since the scheduler
// answers to a whole cluster.  Of a flood of signals the rest has the last answer.  But the first
// signal that ends the run, to this node and to others, is asked about whenever it comes: it may be
// why the answer has changed.  And it may have ended the question before, since Slurm signals all
// that runs in a step: so many questions in a row without an answer do not count.
inline constexpr int kMostQuestions = 2;
inline constexpr int kMostUnanswered = 3;
inline constexpr Duration kBetweenQuestions = std::chrono::seconds(5);

enum class Whose : std::uint8_t { Own, Others };

// What the file holds.
enum class Written : std::uint8_t { Nothing, ReasonWithin, ReasonFromOutside };

struct State {
  // The last signal from outside in this run, to this node if to any, 0 for none, and what is known
  // of it.
  int signal = 0;
  std::optional<worker::StopReason> reason;
  MonoTime learned_at{};           // the reason
  bool is_stopping = false;        // by such a signal, to this node
  bool is_other_stopping = false;  // likewise, to another node since the file was cleared
  Written written = Written::Nothing;
  int questions = 0;                 // not answered yet
  std::optional<MonoTime> asked_at;  // the last of them
  std::set<Whose> asked_about_stop;
  int unanswered = 0;  // in a row
  std::string answer;  // the last one
  // Signals that came too soon after a question that is not answered yet: the last of each.
  std::map<Whose, OutsideRequest> waiting;
};

namespace event {
// New workers are about to start, or the last have gone.
struct Cleared {};
// A reason within the run.
struct Published {
  worker::StopCause cause{};
  std::string words;
};
// A signal has come from outside, and is about to be passed on.
struct Signalled {
  OutsideRequest request;
};
// Another node has been signalled.
struct OtherSignalled {
  int signal = 0;
};
// To action::Ask.  `answer` is empty where there is none.
struct Answered {
  OutsideRequest request;
  Whose whose = Whose::Own;
  std::string answer;
};
}  // namespace event
using Event = std::variant<event::Cleared, event::Published, event::Signalled,
                           event::OtherSignalled, event::Answered>;

namespace action {
struct Write {
  worker::StopReason reason;
};
struct Remove {};
// Ask the scheduler; Answered follows.
struct Ask {
  OutsideRequest request;
  Whose whose = Whose::Own;
};
// For people.
struct Announce {
  std::string words;
};
}  // namespace action
using Action = std::variant<action::Write, action::Remove, action::Ask, action::Announce>;

// Changes `state` and says what is to be done, in this order.
[[nodiscard]] std::vector<Action> step(State& state, const Event& event, Now now,
                                       const std::optional<Scheduler>& scheduler);

std::string to_string(const std::vector<Action>& actions);

}  // namespace ddprun::agent::stop_reason
