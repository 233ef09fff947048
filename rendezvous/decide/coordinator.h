// SPDX-License-Identifier: BSD-3-Clause
//
// Who decides about one run: which nodes are in the next round and with which ranks, whether a
// failure is survived, and when it is over.  There is one coordinator a run, beside the store that
// the nodes meet in.  step() takes what is known, one thing that has happened, and the time; it
// returns what is known now and what must be said to whom.  It sends nothing, waits for nothing and
// reads no clock, so a test plays a thousand nodes through it from a seed (tests/sim).
//
// rendezvous/PROTOCOL.md has the messages, coordinator_service.h the shell.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/quorum.h"
#include "rendezvous/decide/recent_names.h"
#include "rendezvous/decide/run_file.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

enum class Phase : std::uint8_t {
  Gathering,  // no workers run; waiting for nodes
  Running,    // a round is out
  Stopping,   // the workers of the round are being stopped, for another one to follow
  Ended,      // everybody has been told, and is leaving
};

struct Node {
  request::Join join;
  std::uint64_t arrival = 0;
  std::uint64_t connection = 0;       // on which it was last heard; commands go there
  MonoTime seen{};                    // when that was
  std::optional<MonoTime> away_at;    // when that connection broke, if it did
  std::optional<MonoTime> leaves_by;  // told to stop: its workers are dead by then
  std::string leaves_why{};           // "node1 was stopped by SIGTERM"
  int leaves_signal = 0;
  MonoTime leaves_since{};
  bool is_member = false;                 // of the last round
  bool is_down = true;                    // none of its workers runs, and its next store is bound
  bool has_succeeded = false;             // in the current round
  bool is_standby = false;                // and told so
  std::optional<int> last_rank;           // its group rank in the last round it was in
  std::optional<command::Round> round{};  // the last that it was sent here
  RoundId knows{};                        // the last that it was told of
  MonoTime contact = MonoTime::min();     // the pulse that it saw last was published then
};

// A node that wants the --node-rank of another one, which may have gone without a word.
struct Contender {
  std::string rival;
  request::Join join;
  std::uint64_t connection = 0;
};

// The present round of another coordinator, which is gone.  Until all its nodes are accounted for,
// or their leases are over, some of their workers may live.
struct Former {
  std::string run_uuid;  // of the start that had it; empty: unknown, or of several
  std::optional<std::uint64_t>
      round;      // nothing where only nodes that were not in it have come back
  int nodes = 0;  // so many had it
  // By name, where the host before has left a run file.  Each is accounted for by whatever it says:
  // it has gone on, or its workers are dead.
  std::set<std::string> names{};
  // Of each round the nodes that are back or have left; by name, since one may come back twice.
  std::map<std::uint64_t, std::set<std::string>> accounted{};
  MonoTime until{};
  std::string by{};        // RoundId::by: its host may live, cut off from this one
  Duration lease{};        // of its nodes
  bool is_broken = false;  // kept while the run has no node: see State::is_former_broken
};

// A node that came after the end, for the next run of this id.
struct NextComer {
  std::string id;
  request::Join join;
  std::uint64_t connection = 0;
};

// What the run has lost since its last round, of that round's nodes.
struct Shortage {
  std::string why;        // of the first loss: "node1 was lost (...)"
  MonoTime settled_at{};  // from here on it is no longer taken for the end of the whole run
  bool is_announced = false;
};

// A node that asks whether its workers may live, while others may have gone on without this
// coordinator.
struct Unanswered {
  std::string id;
  std::uint64_t connection = 0;
  request::Resume resume;
};

struct State {
  Phase phase = Phase::Gathering;
  std::map<std::string, Node> nodes;
  std::map<int, std::string> holders;  // of each --node-rank
  std::map<std::string, Contender> contenders;
  std::string founder;   // the node whose settings and policy these are
  std::string run_uuid;  // what tells this run from others of the same id, on all hosts it had
  Settings settings;
  Policy policy;

  RecentNames taken_out;  // of `nodes`: what they still say is late
  std::uint64_t arrivals = 0;
  std::uint64_t round = 0;  // the last one
  std::uint64_t next_round = 0;
  std::size_t up_count = 0;  // members that are neither down nor done
  int restart_count = 0;
  std::vector<Failure> failures;      // those that led to a restart, and the last one
  std::optional<MonoTime> failed_at;  // of the failure that the present stop is about
  std::string failed_on;              // the node where it happened
  // The run's end by that failure, unless it turns out that the loss of a node has caused it.
  std::optional<command::End> end_in_doubt;
  bool had_round = false;  // the run has had a round, here or under another host
  std::optional<Shortage> shortage;
  bool has_formed = false;               // a round, here
  std::set<std::string> settled_starts;  // all nodes of these are accounted for
  // Of starts that have lost all their nodes here: the last round.
  std::map<std::string, std::uint64_t> past_rounds;
  bool were_all_former = false;  // all nodes of the round before are back: no others are waited for
  std::optional<Former> former;  // who may come back after a host was lost
  // One of that round's nodes does not go on with it.
  bool is_former_broken = false;
  std::optional<command::Stop> last_stop;              // in Stopping
  MonoTime round_began{};                              // of the last one
  std::optional<MonoTime> newcomers_due;               // when they are taken in, in Running
  std::deque<MonoTime> short_rounds;                   // ends of those that were cut short
  std::map<std::string, std::deque<MonoTime>> losses;  // of a host
  MonoTime gathering_since{};         // for join_timeout, and for what people are told
  std::optional<MonoTime> last_call;  // when it ends
  MonoTime last_turn{};
  MonoTime next_look{};   // for silent nodes
  std::string last_told;  // to those who wait, without its seconds
  MonoTime last_told_at{};
  Quorum quorum;  // where the run's host may change
  // The last contact with another coordinator that a node had which came here from there.
  // Until a lease after it that one's workers may live.
  MonoTime elsewhere = MonoTime::min();
  MonoTime heard_at = MonoTime::max();  // as quorum.h has it, at the last look
  MonoTime next_quorum_look = MonoTime::max();
  MonoTime woke_at = MonoTime::min();  // from a standstill of its own
  std::deque<Unanswered> unanswered;   // until enough nodes are heard again
  std::string beside;  // other runs that wait in this place, for people; whoever steps this sets it
  command::End verdict;             // in Ended
  std::vector<NextComer> next_run;  // who came after the end
};

namespace event {
struct Arrived {
  std::string node;
  Request request;
  std::uint64_t connection = 0;
};
struct Tick {};
// Whoever hosts this coordinator is about to go.
struct HostLeaves {
  std::string why;  // "node0, which hosts the rendezvous, was stopped by SIGTERM"
  int signal = 0;   // that one
};
// The run has another host, and waits here: all nodes go there.
struct GivesWay {
  Endpoint to;
  std::string why;
};
}  // namespace event
using Event = std::variant<event::Arrived, event::Tick, event::HostLeaves, event::GivesWay>;

namespace action {
struct Send {
  std::string node;
  Command command;
  std::uint64_t connection = 0;  // of the node
};
// Nothing more will be sent to this node; what it has not read may be thrown away.
struct Forget {
  std::string node;
  std::uint64_t connection = 0;  // what was sent on it
};
// The run has had its last round.  Whoever comes back to it later is to hear this.
struct Over {
  std::string run_uuid;
  command::End verdict;
};
// A round has begun: for the coordinator that follows, should this process be killed.  `run` is
// left empty.
struct KeepRunFile {
  RunFile file;
};
}  // namespace action
using Action = std::variant<action::Send, action::Forget, action::Over, action::KeepRunFile>;

struct Step {
  State state;
  std::vector<Action> actions;
};

[[nodiscard]] Step step(State state, const Event& event, Now now);

// A round is out, and so few of its nodes are heard that others may go on without it: nothing that
// is said here renews a lease.
bool is_alone(const State& state, MonoTime now);

// The last round was formed here, and enough of its nodes are heard: the run is here.
bool holds_run(const State& state, MonoTime now);

// Nodes of the round before this coordinator of which nothing is known yet.
int missing(const Former& former);

// What a run file says of a run, to a coordinator that begins at `now`: while the process before it
// lived, so did perhaps the workers.
Former former_of(const RunFile& file, MonoTime now);

// When a Tick is due, if nothing happens before; nothing while there is nobody.
std::optional<MonoTime> deadline(const State& state);

// Whether nobody is left, so that the run can be forgotten.
bool is_over(const State& state);

// Of the nodes beyond max_nodes so many may stand by; more are refused.
inline constexpr std::size_t kMaxStandbys = 4096;

// One event often stops all nodes, such as scancel, and reaches them one after the other.  The
// others of a node that was stopped by a signal are told that they wait for it after so long.
inline constexpr Duration kStopSpread = std::chrono::seconds(2);

// How long is waited for still more nodes once there are enough again after a loss.
inline constexpr Duration kShortLastCall = std::chrono::seconds(1);

// Newcomers do not stop a round that is younger than this: more of them may be on their way.
inline constexpr Duration kSettleTime = std::chrono::seconds(1);

// Beyond the grace that a leaving node announces: for SIGKILL and the sweep.
inline constexpr Duration kLeaveMargin = std::chrono::seconds(5);

// A host that was lost flap_limit times in this time is not counted on.
inline constexpr Duration kFlapWindow = std::chrono::minutes(10);

// A run ends when nodes that come and go have cut so many rounds short, each younger than
// kShortRound, in kProgressWindow.
inline constexpr std::size_t kMaxShortRounds = 60;
inline constexpr Duration kShortRound = std::chrono::seconds(10);
inline constexpr Duration kProgressWindow = std::chrono::minutes(10);

}  // namespace ddprun::rendezvous::coordinator
