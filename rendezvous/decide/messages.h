// SPDX-License-Identifier: BSD-3-Clause
//
// What nodes and the coordinator of a run say to each other, and how it is written: one small JSON
// object a message (rendezvous/PROTOCOL.md).  Nothing here waits or sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/decide/failure.h"
#include "rendezvous/decide/findings.h"
#include "rendezvous/decide/ranks.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"
#include "store/base/time.h"

namespace ddprun::rendezvous {

inline constexpr int kProtocolVersion = 1;

// A message beyond this is refused unread.
inline constexpr std::size_t kMaxMessageBytes = 64 * 1024;

// The most workers of one node.
inline constexpr int kMaxLocalWorkers = 65536;

// What a count or rank in a message may be where nothing else is said.
inline constexpr int kMaxCount = 1'000'000;

// Where the run's host may change (host_change.h), these say how: Join::stand_in_port, is_host,
// round_by, after, seen_age, seen_of and died, the same of Left and Heartbeat, Knock,
// Round::by, stand_ins and after, Moved, Settled and StandIns.

// Where another node of the round would host the run if its host were lost.
struct StandIn {
  std::string name;  // of the node, in all its incarnations
  Endpoint at;

  friend bool operator==(const StandIn&, const StandIn&) = default;
};

// So many are named.
inline constexpr std::size_t kMaxStandIns = 8;

// A round of a run whose hosts may change.  Two coordinators may give one number, if neither knows
// of the other.
struct RoundId {
  std::uint64_t number = 0;
  std::string by{};  // the coordinator that formed it; empty: none, or the run's host cannot change

  friend bool operator==(const RoundId&, const RoundId&) = default;
  friend auto operator<=>(const RoundId&, const RoundId&) = default;
};

// A round before another one, from which nodes may still go on that have not heard of that one.
struct Unsettled {
  RoundId id;
  int nodes = 0;        // so many had it
  bool was_in = false;  // the node that says so, or is told so, is one of them

  friend bool operator==(const Unsettled&, const Unsettled&) = default;
};

// A round has at most so many of them before it.
inline constexpr std::size_t kMaxUnsettled = 16;

// A node of this run whose agent has died on the machine of the one that says so, and what it knew.
struct Died {
  std::string name;                // of the node, in all its incarnations
  RoundId knows{};                 // the last round that it was told of
  int nodes = 0;                   // that this round had
  std::vector<Unsettled> after{};  // those before it
  std::string seen_of{};           // the coordinator that it saw last
  // What it, or its guardian, has said on that machine when none of its workers lived any more,
  // such as "was stopped by SIGTERM"; empty: they may live.
  std::string left{};

  friend bool operator==(const Died&, const Died&) = default;
};

// So many are named, those that died last.
inline constexpr std::size_t kMaxDied = 16;

// What a list of the addresses of all nodes of a round, and a command with it, may take.
inline constexpr std::size_t kMaxPeersBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMaxCommandBytes = kMaxPeersBytes + kMaxMessageBytes;

// The most addresses that a node may announce.
inline constexpr std::size_t kMaxAddresses = 16;

// Beyond the grace that a leaving node announces: for SIGKILL and the sweep.
inline constexpr Duration kLeaveMargin = std::chrono::seconds(5);

// The most endpoints that a run has.
inline constexpr std::size_t kMaxEndpoints = 8;

// What all nodes of a run must agree on; the first to join sets it.
struct Settings {
  int min_nodes = 1;
  int max_nodes = 1;
  // Where the workers meet in every round, if the user fixed that (the static backend).
  std::optional<Endpoint> master;
  // Where the nodes meet, in the order in which they are tried: at a ddpd each, of which the others
  // stand in for one that is lost.  Empty: the user named one place.
  std::vector<Endpoint> endpoints{};

  friend bool operator==(const Settings&, const Settings&) = default;
};

// What the first to join decides for the run; another node's opinion has no effect, and it is told
// what it must go by.
struct Policy {
  int max_restarts = 0;                                   // failures that the run survives
  Duration join_timeout = std::chrono::seconds(600);      // below min_nodes
  Duration last_call_timeout = std::chrono::seconds(30);  // between min_nodes and max_nodes
  Duration keep_alive_interval = std::chrono::seconds(1);
  int keep_alive_max_attempt = 5;  // periods of silence until a node counts as lost
  // What a node without contact may take beyond the silence limit to end its workers; the others
  // wait for it.
  Duration lease_grace{};
  int flap_limit = 5;  // losses of one host in kFlapWindow, from which on it stands by; 0: no limit
  // Where the host may change: so many nodes of the last round may go on without the others, also
  // beside others that do.  0: those that are more than half, so that no others do.
  int quorum = 0;

  // At most kLongest, however large the factors are.
  Duration silence_limit() const {
    return keep_alive_interval > kLongest / keep_alive_max_attempt
               ? kLongest
               : keep_alive_interval * keep_alive_max_attempt;
  }
  // How long after it was last heard of the workers of a node are provably dead.
  Duration lease() const { return silence_limit() + lease_grace; }

  static constexpr Duration kLongest = std::chrono::hours(24 * 365);

  friend bool operator==(const Policy&, const Policy&) = default;
};

// What a node's workers do.
enum class Workers : std::uint8_t {
  Down,       // none lives; the node waits for a round
  Up,         // they run
  Stopping,   // they are being stopped
  Succeeded,  // none lives; all have ended well
};

enum class RoundEndCause : std::uint8_t { WorkerFailed, NodeLost, NodeJoined };

// What has ended a round with NodeLost, for people: no decision depends on it.
enum class LossKind : std::uint8_t {
  Other,       // an older node does not say it, or a newer one says what is not known here
  Lost,        // a node has ended or fallen silent
  Left,        // a node was told to stop
  CutOff,      // this node, or another one: it may live, and be back
  Rendezvous,  // who hosts the run, or the connection to it
};

// From a node to the coordinator.
namespace request {
// Who comes, once.  Its worker store is bound already, should it become rank 0.
struct Join {
  std::string host;     // what people call the node
  std::string address;  // where the others can reach it
  int pid = 0;          // of the agent
  Participant participant;
  Settings settings;
  Policy policy;
  std::uint16_t store_port = 0;      // of its worker store
  std::optional<int> node_rank;      // as the user gave it
  std::optional<int> previous_rank;  // its group rank in the last round it knows
  int restart_count = 0;             // of that round
  std::uint64_t next_round = 0;      // one more than that round's number
  std::string run_uuid{};            // of the run, as that round said it; empty before the first
  // It knows of no round, but of this start of the run, and looks for it here: it begins none.
  std::string looks_for{};
  int previous_nodes = 0;           // how many nodes that round had
  bool is_back = false;             // it has joined before, maybe at another coordinator
  bool was_in_round = false;        // that round was the present one when it lost its coordinator
  std::string preflight_failure{};  // why this node can start no worker; empty where it can
  std::size_t endpoint = 0;         // which of settings.endpoints this one is
  unsigned unreached = 0;           // of these it has lately reached none: 1 << their numbers
  std::uint16_t stand_in_port = 0;  // where it would host the run; 0: nowhere
  bool is_host = false;             // its agent hosts this coordinator
  std::string round_by{};           // RoundId::by of the last round it knows
  std::vector<Unsettled> after{};   // those before that round
  // How long ago it last saw the pulse of a coordinator change, and which one that was.
  std::optional<Duration> seen_age{};
  std::string seen_of{};
  // From which its workers may connect, the likeliest first: numeric.
  std::vector<std::string> addresses{};
  std::vector<Died> died{};   // on its machine
  bool gives_bundle = false;  // it knows command::TakeBundle; an older agent does not
  bool says_up = false;       // Heartbeat::up; likewise
};
// The workers of `round` are down, and the next round may begin.
struct Ready {
  std::uint64_t round = 0;
  std::uint16_t store_port = 0;
};
struct Failed {
  std::uint64_t round = 0;
  Failure failure;
  bool is_final = false;  // a restart would fail the same way
  // Its wait for others was over: all nodes are to look who did not come, and then say Found.
  std::optional<TimedOutWait> wait{};
};
// What this node has found out, after its own Failed with a wait or an Inspect.
struct Found {
  std::uint64_t round = 0;
  Findings findings;
};
struct Succeeded {
  std::uint64_t round = 0;
};
// The node was told to stop.  Its workers have `grace` to end; Left follows then.  Those of a node
// that says nothing more are dead kLeaveMargin after that.
struct Leaving {
  std::string why{};  // "was stopped by SIGTERM"
  int signal = 0;     // that one; 0: none
  Duration grace{};
};
// No worker of this node lives, and it says nothing more.  From its agent, or from its guardian,
// once that has ended the workers of an agent that was killed.
struct Left {
  std::string why{};  // "was lost (its agent, pid 7, was killed)"; empty after Leaving or an End
  LossKind loss = LossKind::Other;  // where `why` does not say that it was lost
  // The round whose workers ran when its agent was killed: a coordinator that takes a round over
  // counts it.
  std::optional<std::uint64_t> round{};
  RoundId knows{};                 // the last round that this node was told of
  int nodes = 0;                   // that this round had
  std::vector<Unsettled> after{};  // those before it
  // As in Join.  A guardian does not know how long ago it was: not before it says so.
  std::optional<Duration> seen_age{};
  std::string seen_of{};
};
// The node is back on another connection, under the same name.
struct Resume {
  Join join;  // as it would join now; next_round - 1 is the round that it is in
  Workers workers = Workers::Down;
  std::optional<Failed> failed;  // of that round, as it was reported
  // It was told to stop, as it was said.
  std::optional<Leaving> leaving{};
  // Why it stops its workers: what the coordinator said that it had before; empty: none did.
  std::string why{};
  LossKind loss = LossKind::Other;  // likewise
};
struct Heartbeat {
  // The pulse that this node saw last, as the coordinator's clock had it; 0: none.
  std::int64_t pulse = 0;
  std::optional<std::uint64_t> round{};  // the last that it was told of
  // How many commands have reached it on this connection.  From an older agent: nullopt.
  std::optional<std::uint64_t> heard{};
  // As in Join, where that has changed since this node said it; only of one that waits for a round.
  std::optional<std::vector<Died>> died{};
  // The round of which all workers of this node run, or have run: that it has begun to train is for
  // people.
  std::optional<std::uint64_t> up{};
};
// The connection is gone, which says nothing of the node's workers.  The store sends it in the
// node's name, as its last will.
struct Lost {};
// From a coordinator of the same run, which has found this place: one of the two gives way.
struct Knock {
  Endpoint from;             // where the nodes would go, if they are to go there
  Endpoint to;               // this place, as the other one knows it
  bool has_round = false;    // a round is out there, and enough of its nodes are heard
  std::uint64_t formed = 0;  // one more than the last round formed there; 0: none was
  std::uint64_t order = 0;   // 0: it is at the endpoint; else the number of the stand-in
  // The start of the run that is there.  Empty: none had a round, between the endpoints of a run;
  // between other places, none has one that goes on.
  std::string run_uuid{};
  // This host stood still for longer than its lease: was the run begun anew at the endpoint?  The
  // answer is Moved::is_other_start if so, Continue if not.
  bool asks = false;
  // Between the endpoints of a run:
  bool is_over = false;  // it has ended there
  bool begins = false;   // no node there knows of a round, and the first one is to begin here
  // The last round that the nodes there know, of which too few have come for long; `by` is empty:
  // none.  And how many nodes are there.
  RoundId lacks{};
  int here = 0;
  int stuck = 0;  // so many nodes without workers are there that do not reach this place
};
// Anything in another version of the protocol.  Never sent.
struct Foreign {
  int version = 0;
};
}  // namespace request
using Request = std::variant<request::Join, request::Ready, request::Failed, request::Found,
                             request::Succeeded, request::Leaving, request::Left, request::Resume,
                             request::Heartbeat, request::Lost, request::Knock, request::Foreign>;

struct Message {
  std::string run;
  std::string node;  // a name that no other node has, nor this one in an earlier incarnation
  Request request;
  std::uint64_t connection =
      0;  // counts the connections of this incarnation; commands go to its last
};

// From the coordinator to a node.
namespace command {
// One numbered completion of the rendezvous, as one node sees it.
struct Round {
  std::uint64_t number = 0;  // 0, 1, ... as long as the run lasts
  std::string run_uuid{};    // what tells this run from an earlier or later one of the same id
  int restart_count = 0;     // failures survived so far, of how many
  int max_restarts = 0;
  Assignment ranks{};
  Endpoint master{};                 // where the workers of this round meet: an empty store
  std::string by{};                  // RoundId::by
  std::vector<StandIn> stand_ins{};  // in the order in which they are to be tried
  std::vector<Unsettled> after{};    // who goes on from this round needs these as well
  // For the node that has that store: the addresses from which the workers of all nodes may
  // connect.  From an older coordinator: nullopt.
  std::optional<std::vector<std::string>> peers{};

  RoundId id() const { return {.number = number, .by = by}; }
};
// A worker of `round` has waited in vain.  See what the workers of this node do, or, of a lost
// peer, which have ended; say Found, and go on: a Stop or an End follows soon.
struct Inspect {
  std::uint64_t round = 0;
  std::string in{};      // as of TimedOutWait
  bool is_idle = false;  // likewise
  bool has_lost_peer = false;
  std::string why{};  // for people: whose wait was over
};
// A person wants to see what the workers of `round` do.  Say it in keys::stacks(); they go on.
struct TakeStacks {
  std::uint64_t round = 0;
  std::uint64_t number = 0;   // of this request, for the answer
  std::optional<int> rank{};  // nullopt: of all workers here
};
// A person wants the files of this node (`ddpctl bundle`).  Pack them, and say in keys::bundle()
// how much that is, or the piece that is asked for.
struct TakeBundle {
  std::uint64_t number = 0;      // of the request, for the answer
  std::uint64_t most_bytes = 0;  // packed; 0: nobody wants them any more
  std::uint64_t piece = 0;       // 0: pack them; else see bundle_piece.h
};
// Stop the workers of `round`; another round follows.
struct Stop {
  std::uint64_t round = 0;
  RoundEndCause cause = RoundEndCause::NodeLost;
  LossKind loss = LossKind::Other;   // with NodeLost
  std::string why{};                 // a sentence; empty with WorkerFailed
  int signal = 0;                    // with NodeLost: the one that stopped the node; 0: none
  std::optional<Failure> failure{};  // with WorkerFailed
  int restart_count = 0;             // of the attempt that follows
  int max_restarts = 0;
};
// The exit codes of a run that do not come from its workers: the nodes could not meet, or one that
// hosts them all has gone; and the restarts are spent, of however many there were.
inline constexpr int kExitPreflight = 2;  // too few of the nodes can start workers
inline constexpr int kExitRendezvous = 80;
inline constexpr int kExitBudgetSpent = 82;

// The nodes that are left are too few for a round, since the run has lost one of the last round.
struct Waiting {
  std::string why;  // that loss, as a sentence
};
// The run is over.
struct End {
  int exit_code = 0;
  std::string why{};                // a sentence, unless a worker's failure is the reason
  int signal = 0;                   // the one that stopped the node which hosted the run; 0: none
  std::vector<Failure> failures{};  // one an attempt, in order; the last is the reason, without why
  int restart_count = 0;
  int max_restarts = 0;
  std::string slowest{};  // the slowest worker, a sentence (pace.h); empty: none was
};
// This node cannot be part of the run.
struct Refuse {
  std::string why;
};
// There are enough nodes; this one waits for its chance.
struct Standby {
  std::string why;
  // No coordinator counts on it: its host ends, and the node is to join at the one that follows.
  bool is_outside = false;
};
// For people: who is being waited for, or what else they should know.
struct Info {
  std::string text;
};
// The node has other settings than the first one; this is what it must keep to.
struct KeepAlive {
  Duration keep_alive_interval{};
  int keep_alive_max_attempt = 0;
  Duration lease_grace{};
  std::string text;  // all of them, for people
};
// To a Resume: the node is still part of its round.
struct Continue {};
// The coordinator has given this node up: its lease has run out.  It may join anew.
struct Dropped {
  std::string why;
};
// The run has another host; this node is to join there.
struct Moved {
  Endpoint to;
  std::string why;
  bool is_other_start = false;  // to a host that asks: nodes that know nothing of its run began it
  bool is_unreached = false;    // to a host that knocks: no connection to it comes about from there
};
// Enough nodes have heard of this round: no other can go on from one before it.
struct Settled {
  RoundId round;
};
// To a node that is not in the round: where it finds the run if its host is lost.
struct StandIns {
  std::vector<StandIn> stand_ins;  // as in Round
  std::string run_uuid{};          // likewise; empty: an older coordinator has said this
};
}  // namespace command
using Command =
    std::variant<command::Round, command::Inspect, command::TakeStacks, command::TakeBundle,
                 command::Stop, command::Waiting, command::End, command::Refuse, command::Standby,
                 command::Info, command::KeepAlive, command::Continue, command::Dropped,
                 command::Moved, command::Settled, command::StandIns>;

// Why, as a sentence.
std::string why_of(const command::Stop& stop);

// "lost", "left", "cut_off", "rendezvous"; empty: another one.
std::string_view word_of(LossKind loss);

// What has happened to the node that says this.
LossKind loss_of(const request::Left& left);

// Never fail; bytes that are no UTF-8 become U+FFFD, and a long message of a worker is cut.
std::string encode(const Message& message);
std::string encode(const Command& command);

// Fail with Errc::Protocol and what is wrong with `text`: no JSON, a field that is missing or out
// of range.  Fields that are not known are ignored.  Of a message in another version only who wrote
// it is read (request::Foreign); a command in another version is a failure.
Result<Message> decode_message(std::string_view text);

// What a lease follows from: whether two policies have the same; taken from another; for a node.
bool has_same_lease(const Policy& one, const Policy& other);
void take_lease(Policy& policy, const Policy& from);
command::KeepAlive keep_alive_of(const Policy& policy, std::string text);

// Who has sent what is no message, so that it hears of that.
struct Sender {
  std::string run;
  std::string node;
  std::uint64_t connection = 0;
};
std::optional<Sender> decode_sender(std::string_view text);
Result<Command> decode_command(std::string_view text);

}  // namespace ddprun::rendezvous
