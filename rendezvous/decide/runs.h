// SPDX-License-Identifier: BSD-3-Clause
//
// All runs that meet in one store: which of their coordinators a message is for, who may begin
// another one, and what is remembered of those that are over.  Pure, like coordinator.h, which it
// steps; coordinator_service.h is the shell.
//
// Of a run that is over the verdict is kept for an hour, for nodes that were away when it ended:
// such a node names the run uuid, and so is told the end and does not begin it anew.
// A node that comes without that begins another run, which may have the same id.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/decide/coordinator.h"
#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::runs {

inline constexpr std::size_t kMaxRuns = 4096;

// How long, and of how many runs, a verdict is kept.
inline constexpr Duration kVerdictAge = std::chrono::hours(1);
inline constexpr std::size_t kMaxVerdicts = 1024;

// How long the last commands to a node that is in no run wait for it, and of how many such nodes.
inline constexpr Duration kLastCommandAge = std::chrono::minutes(1);
inline constexpr std::size_t kMaxDeparted = 65536;

struct Verdict {
  std::string run;
  std::string run_uuid;
  std::uint64_t next_round = 0;  // that it would have had
  command::End end;
  MonoTime at{};
};

// A start of a run that has no node any more, but no verdict either: they were all lost.  One that
// comes back may know less of its rounds.
struct Past {
  std::string run;
  std::string run_uuid;
  std::uint64_t round = 0;  // the last
  MonoTime at{};
  coordinator::Churn churn{};
  int lost_rounds = 0;  // see coordinator::State
};

// A node that was told the last it will be told, and when.
struct Departed {
  std::string node;
  std::uint64_t connection = 0;
  MonoTime at{};
};

// A node that may not know yet that it was given up, such as one whose machine stands still: the
// store says so for kGivenUpAge.
struct GivenUp {
  std::string node;
  MonoTime at{};
  std::string run{};
};
inline constexpr Duration kGivenUpAge = std::chrono::minutes(10);

// A node that has left a run which does not know it, or which is not known here.
struct Early {
  std::string run;
  std::string node;
  request::Left left;
  MonoTime at{};
};
inline constexpr std::size_t kMaxEarly = 4096;

// Of how many nodes is known that they have gone.
inline constexpr std::size_t kMaxGone = 65536;

// How long a node that comes is sent on to where its run is, after that host has last said so.
inline constexpr Duration kMovedAge = std::chrono::seconds(10);

// Where a run has gone.
struct Moved {
  Endpoint to;
  MonoTime until{};
  std::string by{};  // the coordinator there, where a run has several endpoints
};

// Another host of a run that waits here waits as well, and is to have the run.
struct Rival {
  Endpoint at;
  MonoTime knocked_at{};
  std::optional<MonoTime> unreached_since{};  // nobody was reached there, and it goes on knocking
  MonoTime stays_until = MonoTime::min();     // so the run stays here
};
// Nobody is reached there for so long: that is no blink of the network.
inline constexpr Duration kBeyondReach = std::chrono::seconds(2);

// Between its endpoints a run is asked for so often; all runs together once in kKnockSpacing, which
// is less often for each where there are thousands (at most kMaxRuns).
inline constexpr Duration kKnockPeriod = std::chrono::seconds(1);
inline constexpr Duration kKnockSpacing = std::chrono::milliseconds(1);
static_assert(static_cast<int>(kMaxRuns) * kKnockSpacing < kMovedAge);

// A daemon forgets the rounds of a run that has had no node here for so long, and no word from
// another endpoint: its nodes may all be dead.
inline constexpr Duration kQuorumAge = std::chrono::minutes(10);

// One Tick is for so many nodes, of one run at least; the runs that are left have the next one, so
// that thousands that are due at once keep no message waiting.
inline constexpr std::size_t kTickedNodes = 256;

struct State {
  std::map<std::string, coordinator::State> runs;
  // When each of them is due, which step() keeps: a step looks at the runs that it changes only.
  std::set<std::pair<MonoTime, std::string>> due;
  std::map<std::string, MonoTime> due_at;
  // Of the coordinators here: RoundId::by.  "NODE@...", where the agent of that node hosts them;
  // empty: their runs' hosts cannot change.
  std::string name;
  std::uint64_t order = 0;  // request::Knock::order
  std::map<std::string, Moved> moved;
  MonoTime moves_looked_at = MonoTime::min();  // for those that are old
  std::map<std::string, Rival> rivals;         // of runs that agents host
  // Of runs without a coordinator here: the rounds that others may have gone on from.
  std::map<std::string, coordinator::Quorum> quorums;
  // No agent hosts here: only runs whose nodes have several endpoints can change their hosts.
  bool is_daemon = false;
  std::map<std::string, MonoTime> quorum_times;  // there: since when each is in `quorums`
  // There: runs that were given away while workers lived.  Until then no pulse renews their leases.
  std::map<std::string, MonoTime> given_away;
  // A run whose id no later one has, that of the host's own step: who comes to it late, and was
  // never part of it, hears how it ended.  Empty: none.
  std::string only_run;
  std::string guarded_run;        // whose first round a registry lets only one host begin
  std::set<std::string> gone;     // nodes of it that have said their last word
  std::deque<Verdict> verdicts;   // oldest first
  std::deque<Past> pasts;         // oldest first
  std::deque<Departed> departed;  // oldest first
  std::deque<GivenUp> given_up;   // oldest first
  std::deque<Early> early;        // oldest first
  // Of runs that have no coordinator here at present: whose workers may be alive.
  std::map<std::string, coordinator::Former> formers;
  MonoTime last_turn{};
  std::size_t said_bytes = 0;        // room.h: by all nodes; or more, as some have gone since
  MonoTime said_bytes_counted_at{};  // anew
  std::set<std::string> filed;       // runs that have a run file
  std::string why_leaving;           // set once no node is let in any more
};

namespace event {
// Before all others: the run files that the process before this one has left here.
struct Begun {
  std::vector<RunFile> files;
  std::string name{};
  std::uint64_t order = 0;
  bool is_daemon = false;
};
struct Arrived {
  Message message;
};
// Something that is no message; `problem` says why.  A sender that is in no run hears of it.
struct Unreadable {
  Sender sender;
  std::string problem;
};
struct Tick {};
// See coordinator::event::MarkRead.
struct MarkRead {
  std::string run;
  std::uint64_t number = 0;
};
// See coordinator::event::HostLeaves.
struct HostLeaves {
  std::string why;
  int signal = 0;
};
// Each run but the host's own: see coordinator::event::HandOver.
struct HandOver {
  std::string own_run;
  std::string why;
};
// action::LookBack, or a knock there, has found nobody.
struct Unreached {
  std::string run;
  Endpoint at;
};
// Another place has answered request::Knock: the run is to go there.
struct Answered {
  std::string run;
  command::Moved moved;
};
// See coordinator::event::DoubtSettled: no other start of the run goes on at the endpoint.
struct EndpointIsClear {
  std::string run;
};
// See coordinator::event::StacksWanted.
struct StacksWanted {
  std::string run;
  std::optional<int> rank{};
};
// See coordinator::event::BundleWanted.
struct BundleWanted {
  BundleTarget target;
};
// See coordinator::event::PaceSeen.
struct PaceSeen {
  std::string run;
  Pace pace;
};
}  // namespace event
using Event =
    std::variant<event::Begun, event::Arrived, event::Unreadable, event::Tick, event::MarkRead,
                 event::HostLeaves, event::HandOver, event::Answered, event::Unreached,
                 event::EndpointIsClear, event::StacksWanted, event::BundleWanted, event::PaceSeen>;

namespace action {
using Send = coordinator::action::Send;
using Forget = coordinator::action::Forget;
using Suspect = coordinator::action::Suspect;
using Acquit = coordinator::action::Acquit;
// As coordinator::action::Mark, of this run.
struct Mark {
  std::string run;
  std::uint64_t number = 0;
};
using EmptyCommonSpace = coordinator::action::EmptyCommonSpace;
// Of a run with several endpoints: to be said to the coordinator at another one; the answer comes
// as event::Answered.
struct Knock {
  std::string run;
  request::Knock knock;
};
// Of a run that an agent hosts: what knock() says is to be said at this place, from where another
// host has knocked.  The answer comes as event::Answered, or event::Unreached.
struct LookBack {
  std::string run;
  Endpoint at;
};
using KeepRunFile = coordinator::action::KeepRunFile;
// No worker of this run lives.
struct DropRunFile {
  std::string run;
};
}  // namespace action
using Action = std::variant<action::Send, action::Forget, action::Suspect, action::Acquit,
                            action::Mark, action::EmptyCommonSpace, action::Knock, action::LookBack,
                            action::KeepRunFile, action::DropRunFile>;

struct Step {
  State state;
  std::vector<Action> actions;
  std::vector<std::string> changed;  // runs, of which some may be gone by now
};

[[nodiscard]] Step step(State state, const Event& event, Now now);

// When a Tick is due, if nothing happens before; nothing while there is nothing to wait for.
std::optional<MonoTime> deadline(const State& state);

// What this place says to another one where the run may be; nothing while neither could change.
std::optional<request::Knock> knock(const State& state, const std::string& run,
                                    const Endpoint& from, const Endpoint& to, MonoTime now);

// The last round was formed here, and enough of its nodes are heard.
bool holds(const State& state, const std::string& run, MonoTime now);

// See coordinator::is_in_doubt().
bool is_in_doubt(const State& state, const std::string& run, MonoTime now);

// Whether a pulse renews the leases of this run's nodes; see coordinator.h.
bool is_alone(const State& state, const std::string& run, MonoTime now);
// The runs of which it renews none.
std::vector<std::string> alone(const State& state, MonoTime now);

// When enough nodes of the run were last heard to see this coordinator: the lease of the hosting
// node's own workers counts from there.
MonoTime heard_at(const State& state, const std::string& run, MonoTime now);

// Whether a run goes on elsewhere, although its host leaves; see coordinator::event::HostLeaves.
bool leaves_to_others(const State& state);
// Whether the host may close: no run has a node that needs it.
bool is_idle(const State& state);

// Whether `only_run` has ended after a round.
bool has_ended(const State& state);

}  // namespace ddprun::rendezvous::runs
