// SPDX-License-Identifier: BSD-3-Clause
//
// What a node knows of its run and of the connection to the coordinator, and the questions that
// several parts ask about that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_places.h"
#include "rendezvous/decide/seen_coordinators.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::member {

// This node, as the user and the machine describe it.
struct NodeConfig {
  std::string host;       // what people call it
  std::string address{};  // where the others can reach it; empty: as the connection shows it
  int pid = 0;            // of the agent; NetworkHandler sets it
  Participant participant{};
  Settings settings{};
  Policy policy{};
  std::optional<int> node_rank{};   // as the user gave it
  std::string preflight_failure{};  // why it cannot run workers; empty where it can
};

struct Config {
  std::string run;
  std::string name;      // of this node: unique, and the same in all its incarnations
  std::string endpoint;  // where the nodes meet, for people
  NodeConfig node;
  Duration read_timeout = std::chrono::seconds(60);
  // What the workers have to end when this node is told to stop: --shutdown-timeout.
  Duration stop_grace = std::chrono::seconds(30);
  // Where this node would host the run: its port, bound already.  0: nowhere; where no node says
  // one, the run ends with its host.
  std::uint16_t stand_in_port = 0;
  // The nodes have several endpoints, at a ddpd each: node.settings.endpoints.  `endpoint` names
  // all.
  bool may_move() const { return !node.settings.endpoints.empty(); }
  // Instead of an endpoint, a registry says who hosts (rendezvous/host_registry.h).
  bool has_registry = false;
  // No node counts on this one.  If there is no host, the run may have ended before it came, and
  // else the other nodes fail.
  bool is_spare = false;

  // How long an absent host is tried: one that this node has never reached, and one that is lost.
  Duration patience(bool had_round) const {
    return had_round ? node.policy.join_timeout : std::min(read_timeout, node.policy.join_timeout);
  }
};

enum class Link : std::uint8_t { Down, Connecting, Up };

// Where no connection came about: one of several endpoints, or a place where it was sent.
struct Unreached {
  std::optional<Endpoint> at{};  // as State::place
  std::string why{};
  MonoTime since{};
  MonoTime until{};             // the last attempt
  std::uint64_t sent_back = 0;  // by coordinators that say that the run is there
};

struct State {
  Link link = Link::Down;
  std::uint64_t incarnation = 0;  // of this node: given up by the others, it comes back as the next
  std::uint64_t connection = 0;   // counts the connections tried in this incarnation
  std::uint64_t attempts = 0;     // to connect, since a connection that has lasted
  MonoTime connected_at{};
  std::uint64_t heard = 0;         // commands, on this connection
  bool is_joined = false;          // the coordinator knows this incarnation
  bool has_joined = false;         // once, in whatever incarnation
  bool had_joined_before = false;  // the last time
  // Cut off from the round `last`: until then no coordinator has gone on without this node.
  std::optional<MonoTime> was_in_round_until;
  bool wants_round = false;  // the agent's workers are down
  bool is_leaving = false;   // told to stop: it joins no further round
  bool has_ended = false;    // the run, or this node's part in it: likewise
  bool has_verdict = false;  // the run has ended
  bool is_over = false;      // nothing is said or told any more
  Workers workers = Workers::Down;
  std::optional<std::uint64_t> up_round;  // the last of which all workers here have run
  std::optional<request::Failed> failed;  // of the last round, as reported
  bool is_failure_posted = false;         // or part of the last Resume
  std::string stops_for;                  // why the coordinator has told it to stop the workers
  LossKind stops_for_loss = LossKind::Other;
  std::optional<request::Leaving> leaving;
  // When its workers must be dead because of that: the others go on a second later.
  MonoTime leaves_by = MonoTime::max();
  // Where it is connected to, or tries to be; nothing: the endpoint that the user gave.
  std::optional<Endpoint> place;
  std::optional<Endpoint> found_at;  // where a registry had the host, at the last connection
  std::optional<Endpoint> sent_to;   // where a coordinator has sent it, to be tried first
  std::vector<StandIn> stand_ins;    // as last named to it, with a round or without
  std::string stand_ins_of;          // of which start of the run; empty: that is not known
  std::optional<Endpoint> host_at;   // where the host that named them was; likewise
  std::string host_name;             // the coordinator there
  // Where an agent of this machine knew the run before this one came; for one that knows no round.
  RunPlaces known_before;
  std::size_t next_known = 0;          // the next of these to be tried
  MonoTime left_endpoint_at{};         // when the endpoint was last tried in vain before these
  std::string place_of;                // `place` is one of these: the node that is to host there
  std::string told_found;              // which of them people were told of
  MonoTime seeks_since{};              // the host is lost
  std::optional<Unreached> unreached;  // the last such place
  std::map<std::size_t, MonoTime> missed_at;  // when each of several endpoints was last not reached
  SeenCoordinators seen;
  // What that was before this node joined here, until it has a round.
  std::optional<MonoTime> was_in_round_until_before;
  std::int64_t pulse_time = 0;  // as the pulse says it
  bool is_echo_due = false;     // the next pulse is to be confirmed at once
  MonoTime knocked_at{};
  std::string coordinator;    // which one it is connected to, or was last
  bool is_at_daemon = false;  // it is not part of an agent: it may be restarted under the workers
  bool is_own_host = false;   // it is part of this agent: what stops this node stops it, too
  std::uint16_t store_port = 0;                  // of the worker store for the round that is wanted
  std::string address;                           // where the others can reach this node
  std::vector<std::string> addresses;            // from which its workers may connect
  std::vector<Died> died;                        // agents of the run, on this machine
  bool has_left = false;                         // and says nothing more on this connection
  bool is_died_due = false;                      // the next heartbeat says so
  std::optional<command::Round> last;            // the last round this node was in
  std::optional<command::Round> formed;          // the last one of event::Formed
  int restart_count = 0;                         // as last heard
  std::optional<command::KeepAlive> keep_alive;  // where the run's settings are not this node's
  MonoTime joined_at{};                          // when this incarnation said so
  MonoTime ready_at{};                           // likewise, that it can begin a round
  MonoTime connecting_since{};
  // It has joined, in whatever incarnation, and no coordinator has given a sign of life since.
  std::optional<MonoTime> unheard_since;
  bool was_reset = false;            // the last connection; see event::ConnectionLost
  std::optional<MonoTime> muted_at;  // when a connection was last given up since no answer came
  MonoTime told_at{};                // that the host is not there
  std::string told;
  MonoTime told_of_cut_at{};  // that this node was cut off, or sent away
  std::string told_of_cut;
  std::string pulse;  // what the coordinator's pulse was at the last look
  // When the look at it began that last found it changed.  lease() counts from here; the
  // coordinator's silence_limit() from later, when that same beat arrived.
  MonoTime pulse_at{};
  std::size_t pulse_from = 0;  // which of several endpoints it was
  // When a hosting node last learned that this is later: what the others confirm is as old as their
  // last look.
  MonoTime confirmed_at{};
  std::optional<MonoTime> asked_at;  // when the look that is under way began
  // When a tick was last noticed to be late, once after each contact.
  std::optional<MonoTime> woke_at;
  // Having stood still, the node has asked whether it is still part of its round; since when.
  std::optional<MonoTime> asks_since;
  bool has_outslept_lease = false;  // that standstill was longer than the lease of its workers
  std::deque<MonoTime> resumes;     // when each was sent that has no answer yet, on this connection
  // It has come to another of several endpoints with workers: until the coordinator there has said
  // that enough nodes of the round have, no pulse renews a lease.
  bool awaits_continue = false;
  bool is_first_try = false;  // of the endpoint at which the connection was lost
  MonoTime last_tick{};
  // Of the workers of an incarnation that was cut off, while they are being stopped.
  std::optional<MonoTime> cut_off_lease;
  MonoTime lease_end = MonoTime::max();  // as it was last passed on
};

// When the node has had no contact for too long, and is to stop its workers.
MonoTime loses_contact_at(const State& state, const Config& config);

// After a standstill: until when it waits to hear whether the run goes on with it, before it counts
// as given up.  nullopt: it does not ask, or has time.
std::optional<MonoTime> asks_until(const State& state, const Config& config);

// What this incarnation of the node is called: its queue, its will, the sender of its messages.
std::string node_id(const State& state, const Config& config);

// The policy of the run, where it is known, and else that of this node.
Policy policy_of(const State& state, const Config& config);

bool has_workers(const State& state);

// Its workers of that round run, and the coordinator may count on them.
bool has_workers_of(const State& state, std::uint64_t round);

// Whether its workers have succeeded and a daemon, which no other place stands in for, is to say
// that the others' have.  However long that is away, it asks as the same node: as another one it
// would begin a round, and all would run again.
bool waits_for_verdict(const State& state, const Config& config);

// Something answers there, and that is no coordinator that lives.
bool is_unheard_for_long(const State& state, const Config& config, MonoTime now);

// It knows of no round, and looks for the run also where an agent of its machine knew it.
bool looks_where_known(const State& state);
// It is at such a place, or tries to be.  It joins the run there, and begins none.
bool is_where_known(const State& state);

// It has joined, and its workers are down.
bool waits_for_round(const State& state);

// Its host is about to end, and it joins whoever follows: that host may be lost without a word.
bool waits_outside(const State& state);

// The host of the last round may be followed by another one.
bool has_stand_ins(const State& state);

// The last round that this node is in, as it was told or as the coordinator in this agent knows.
const command::Round* last_known(const State& state);

// The run has ended at its endpoint, so nothing is left that this node's memory would be asked for
// again.  At the endpoint that another host has left a run file may lie: who begins the run anew
// there has to hear that the nodes in it are gone.
bool may_forget(const State& state);

// It may follow this one as soon as the first round is out, which the others may have and this node
// not yet: it may stand still between the two.  Others count on this node then, also where it would
// host nowhere itself.
bool may_change_host(const State& state, const Config& config);

// What stops this node stops its coordinator as well, and no other one follows: its workers need no
// lease.
bool is_above_lease(const State& state, const Config& config);
// It hosts, and another coordinator may follow: its own workers have a lease like those of the
// others.
bool hosts_with_lease(const State& state, const Config& config);

// Whether this node hosts the run when its turn among the stand-ins of the last round comes.
bool has_turn(const State& state, const Config& config);

// Often enough that a lost one does not look like silence, nor a long interval like a node that is
// no more than a name (kLongestMute).
Duration heartbeat_interval(const State& state, const Config& config);

// When a connection that does not answer counts as broken, so that another one is made while the
// lease lasts: one may die alone.  Not twice in a silence limit, and not where that is short, since
// it may be the host or the way to it that is slow.
std::optional<MonoTime> mute_at(const State& state, const Config& config);

// An agent that stood still for a moment has not read what lies in its socket.  So it judges the
// silence of the others this much later, in parts of contact_limit().
inline constexpr int kReadingParts = 20;
// Until when it only reads; the past if it did not stand still.
MonoTime reads_until(const State& state, const Config& config);

// When the next Tick is due; it may change with every step.
MonoTime next_tick(const State& state, const Config& config);

// By so much that what the node has heard may be from before.
bool is_tick_late(const State& state, const Config& config, MonoTime now);

// For longer than the coordinator hears nothing of it without giving it up.
bool has_stood_still(const State& state, const Config& config, MonoTime now);

// From its last contact, how long after it the workers of this node must be dead: a tenth of the
// silence limit less than the coordinator waits before it goes on without them.
Duration lease(const State& state, const Config& config);

// When its workers must be dead, as things are now; MonoTime::max() where nothing says when.
MonoTime end_of_lease(const State& state, const Config& config);

// From its last contact, how long after it they begin to be stopped: half of the silence limit.  A
// node without workers is in no hurry.
Duration contact_limit(const State& state, const Config& config);

}  // namespace ddprun::rendezvous::member
