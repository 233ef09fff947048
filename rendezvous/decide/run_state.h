// SPDX-License-Identifier: BSD-3-Clause
//
// What the coordinator of one run knows of it, and the questions that several of its parts ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/bundle_inquiry.h"
#include "rendezvous/decide/churn.h"
#include "rendezvous/decide/findings.h"
#include "rendezvous/decide/former.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/pace.h"
#include "rendezvous/decide/quorum.h"
#include "rendezvous/decide/recent_names.h"
#include "rendezvous/decide/restarts.h"
#include "rendezvous/decide/stack_inquiry.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

enum class Phase : std::uint8_t {
  Gathering,  // no workers run; waiting for nodes
  Running,    // a round is out
  Stopping,   // the workers of the round are being stopped, for another one to follow
  Ended,      // everybody has been told, and is leaving
};

// Of what a node is told on its connection, of which it says how much it has heard.  One whose
// heartbeats come may be deaf all the same, as where a network drops large packets.
struct Delivery {
  std::uint64_t told = 0;   // commands
  std::uint64_t sent = 0;   // of these, as far as that is known: see DeliveryMarks
  std::uint64_t heard = 0;  // by its last heartbeat
  int beats_behind = 0;     // in a row, with nothing new, though more was sent
  bool is_asked = false;    // whether all of `told` was sent
  bool is_given_up = false;
};

// When a mark is read, what was sent before it lies ready for the nodes.  One is under way at a
// time, for all that are asked about.
struct DeliveryMarks {
  struct Asked {
    std::string id;
    std::uint64_t connection = 0;  // of the node
    std::uint64_t told = 0;        // before the mark
  };
  std::optional<std::uint64_t> number{};
  std::vector<Asked> asked;
  std::vector<Asked> next;  // for the mark after it
};

struct Node {
  request::Join join;
  std::uint64_t arrival = 0;
  std::uint64_t connection = 0;     // on which it was last heard; commands go there
  Delivery delivery{};              // of those commands
  MonoTime seen{};                  // when that was
  MonoTime came_at{};               // when it joined
  bool has_spoken = false;          // since then; it may be no more than a name
  std::optional<MonoTime> away_at;  // when that connection broke, if it did
  std::optional<std::uint64_t> suspected_at_mark{};  // about to be given up; see losses.h
  std::optional<MonoTime> leaves_by;                 // told to stop: its workers are dead by then
  std::string leaves_why{};                          // "node1 was stopped by SIGTERM"
  int leaves_signal = 0;
  MonoTime leaves_since{};
  bool is_member = false;                 // of the last round
  bool is_down = true;                    // none of its workers runs, and its next store is bound
  bool has_succeeded = false;             // in the current round
  bool is_standby = false;                // and told so
  std::optional<int> last_rank;           // its group rank in the last round it was in
  std::optional<command::Round> round{};  // the last that it was sent here
  RoundId knows{};                        // the last round that it was told of
  MonoTime contact = MonoTime::min();     // the pulse that it saw last was published then
};

// A node that wants the --node-rank of another one, or has other settings than that one, which may
// have gone without a word.
struct Contender {
  std::string rival;
  request::Join join;
  std::uint64_t connection = 0;
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

// Where the run's host may change (host_change.h).
struct Contacts {
  // The last contact with another coordinator that a node had which came here from there.
  // Until a lease after it that one's workers may live.
  MonoTime elsewhere = MonoTime::min();
  // With one that did not form the last round which that node knows: it may have formed a later
  // one, so that it proves nothing where all nodes of that round are accounted for.
  MonoTime between = MonoTime::min();
  // The longest that a node which came here from another coordinator goes by.
  Duration lease{};
  Duration silence{};
  MonoTime heard_at = MonoTime::max();  // enough nodes to see this coordinator, at the last look
  MonoTime next_look = MonoTime::max();
  MonoTime woke_at = MonoTime::min();  // from a standstill of its own
  // That was so long that the run may have been begun anew at the endpoint, which is elsewhere:
  // until when it may, unless the endpoint says that it was not.
  MonoTime doubted_until = MonoTime::min();
  Duration stood_still{};               // for so long
  MonoTime tried_at = MonoTime::min();  // to form a round, by Rounds::may_try()
  // When workers were last taken for dead since their lease was over here.
  MonoTime judged_at = MonoTime::min();
  std::deque<Unanswered> unanswered;  // until enough nodes are heard again
};

// Where the nodes have several endpoints (rendezvous/PROTOCOL.md).
struct Moving {
  std::string daemon;        // what the coordinator here is called in the rounds of such runs
  std::size_t endpoint = 0;  // of the run's endpoints, this one
  std::optional<RoundId> adopted{};  // the round of another coordinator that goes on here
  MonoTime adopted_at{};
  MonoTime knocks_at = MonoTime::min();  // next, at the other endpoints
  bool has_given_way = false;            // to another host, with all nodes
  // Nodes that wait at another endpoint since they do not reach this one, as said there lately.
  struct Stuck {
    Endpoint at;
    int nodes = 0;
    MonoTime until{};
  };
  std::optional<Stuck> stuck{};
};

// The worker of a node has waited in vain for others, and the nodes are asked who did not come
// before the workers are stopped.
struct Inspection {
  std::string id;  // of the node that has failed
  request::Failed failed;
  Inquiry inquiry;                // what was answered so far
  std::set<std::string> awaited;  // the nodes that have not answered
  MonoTime until{};               // not longer
};
// A node takes about a second for its stacks (agent/inspection.h).
inline constexpr Duration kInspectionLimit = std::chrono::seconds(3);

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
  Restarts restarts;
  std::optional<Inspection> inspection;  // in Running
  StackInquiry stack_inquiry;
  BundleInquiry bundle_inquiry;
  Pace pace;  // of the workers, for people
  Churn churn;
  bool had_round = false;  // the run has had a round, here or under another host
  std::optional<Shortage> shortage;
  std::string last_refusal;  // "refused node1 (pid 7): ...", since the last round
  bool has_formed = false;   // a round, here
  // The first round of this start was formed here, by nodes that knew of none.
  std::optional<MonoTime> begun_at;
  MonoTime told_of_other_at = MonoTime::min();  // that another start goes on
  bool has_lost_finished = false;               // of this round a node that had succeeded has gone
  bool is_left_to_others = false;               // by its host, which goes: they find another one
  bool is_guarded = false;  // by a registry: no second first round begins beside this run's
  bool is_away_from_endpoint = false;  // a stand-in hosts: fresh nodes meet elsewhere
  FormerRounds former;
  Quorum quorum;
  Contacts contacts;
  Moving moving;
  bool were_all_former = false;  // all nodes of the round before are back: no others are waited for
  std::optional<command::Stop> last_stop;  // in Stopping
  MonoTime round_began{};                  // of the last one
  std::optional<MonoTime> newcomers_due;   // when they are taken in, in Running
  int stops_for_newcomers = 0;             // since a round has lasted for kLongRound
  int lost_rounds = 0;         // likewise, and since a worker has failed; see kMaxLeaseFactor
  int lease_factor = 1;        // by which `policy` has a longer silence limit
  MonoTime gathering_since{};  // for join_timeout, and for what people are told
  std::optional<MonoTime> last_call;  // when it ends
  MonoTime last_turn{};
  MonoTime next_look{};     // for silent nodes
  std::uint64_t marks = 0;  // that were put into the inbox
  DeliveryMarks delivery_marks;
  std::string last_told;  // to those who wait, without its seconds
  MonoTime last_told_at{};
  // Other runs that wait in this place, for people; the caller of step() sets it.
  std::string beside;
  // Of a run of one node, for people: its host.  Its node says none, so that what is said of the
  // run to its own user names none; the caller of step() sets it.
  std::string only_host{};
  command::End verdict;             // in Ended
  std::vector<NextComer> next_run;  // who came after the end
};

// Its workers run, as far as is known.
bool is_up(const Node& node);
// It has the store of the round's workers, which others may still need; its own have succeeded.
bool has_only_store(const Node& node);
// By `now` its connection was broken, or it had been silent for longer than between two heartbeats.
bool may_be_lost(const Node& node, const Policy& policy, MonoTime now);

// The round that runs is one of the coordinator before.
bool is_taken_over(const State& state);
// And one of its nodes does not go on with it.
bool is_broken(const State& state);

// A round begins only when every worker of the round before is provably dead, and when all that are
// counted on can hear of it.
bool may_form(const State& state);

bool has_room(const State& state);
bool has_any_succeeded(const State& state);
bool is_flapping(const State& state, const std::string& host, MonoTime now);

// "node0 (pid 17)".
std::string describe(const request::Join& join);

// The host of a node, for people who look at the run from outside.
const std::string& host_of(const State& state, const Node& node);

// Of the nodes beyond max_nodes so many may stand by; more are refused.
inline constexpr std::size_t kMaxStandbys = 4096;

// One event often stops all nodes, such as scancel, and reaches them one after the other.  The
// others of a node that was stopped by a signal are told that they wait for it after so long.
inline constexpr Duration kStopSpread = std::chrono::seconds(2);

// A node without workers whose connection is broken is given up after so long, whatever its silence
// limit is; and one that has said nothing since it joined.
inline constexpr Duration kLongestAway = std::chrono::minutes(1);
inline constexpr Duration kLongestMute = std::chrono::seconds(30);

// How long is waited for still more nodes once there are enough again after a loss.
inline constexpr Duration kShortLastCall = std::chrono::seconds(1);

// More newcomers may be on their way: they stop the round together, so long after the first of them
// came, or as soon as there are as many nodes as the run takes.
inline constexpr Duration kGatherTime = std::chrono::milliseconds(500);

// And they stop no round that is younger than this.  Each stop for newcomers doubles it, up to
// kMaxDoublings times, until a round has lasted for kLongRound.
inline constexpr Duration kSettleTime = std::chrono::seconds(1);
inline constexpr int kMaxDoublings = 4;
inline constexpr Duration kLongRound = std::chrono::minutes(5);

// Rounds that are lost in a row, each because a node was silent and is not known to have died, show
// machines or a network that are too slow for the silence limit.  From the second on it is doubled,
// up to kMaxLeaseFactor times what was asked for, and not beyond kLongestStretched.
inline constexpr int kMaxLeaseFactor = 4;
inline constexpr Duration kLongestStretched = std::chrono::minutes(1);

}  // namespace ddprun::rendezvous::coordinator
