// SPDX-License-Identifier: BSD-3-Clause
//
// One node's side of a run of several nodes: when it connects, what it says to the coordinator,
// what of the answers its agent is told, and when it must take itself for cut off.  Pure, like
// coordinator.h: step() returns what is to be done, rendezvous/network.h does it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/messages.h"
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

// When this node last saw that a coordinator lives, and which one.
struct Contact {
  MonoTime at{};
  std::string of;
};

struct State {
  Link link = Link::Down;
  std::uint64_t incarnation = 0;  // of this node: given up by the others, it comes back as the next
  std::uint64_t connection = 0;   // counts the connections tried in this incarnation
  std::uint64_t attempts = 0;     // to connect, since a connection that has lasted
  MonoTime connected_at{};
  bool is_joined = false;   // the coordinator knows this incarnation
  bool has_joined = false;  // once, in whatever incarnation
  // Cut off from the round `last`: until then no coordinator has gone on without this node.
  std::optional<MonoTime> was_in_round_until;
  bool wants_round = false;  // the agent's workers are down
  bool is_leaving = false;   // told to stop: it joins no further round
  bool has_ended = false;    // the run, or this node's part in it: likewise
  bool has_verdict = false;  // the run has ended
  bool is_over = false;      // nothing is said or told any more
  Workers workers = Workers::Down;
  std::optional<request::Failed> failed;  // of the last round, as reported
  bool is_failure_posted = false;         // or part of the last Resume
  std::optional<request::Leaving> leaving;
  // When its workers must be dead because of that: the others go on a second later.
  MonoTime leaves_by = MonoTime::max();
  // Where it is connected to, or tries to be; nothing: the endpoint that the user gave.
  std::optional<Endpoint> place;
  std::optional<Endpoint> sent_to;  // where a coordinator has sent it, to be tried first
  MonoTime seeks_since{};           // the host is lost
  std::optional<Contact> contact;
  // With several endpoints: the last one with another coordinator than that of `contact`, until
  // that one has answered, and so knows of it.
  std::optional<Contact> unreported;
  std::optional<Contact> contact_before;  // with the coordinator before, until this one has a round
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
  std::optional<command::Round> last;            // the last round this node was in
  int restart_count = 0;                         // as last heard
  std::optional<command::KeepAlive> keep_alive;  // where the run's settings are not this node's
  MonoTime joined_at{};                          // when this incarnation said so
  MonoTime ready_at{};                           // likewise, that it can begin a round
  MonoTime connecting_since{};
  // It has joined, in whatever incarnation, and no coordinator has given a sign of life since.
  std::optional<MonoTime> unheard_since;
  std::optional<MonoTime> muted_at;  // when a connection was last given up since no answer came
  MonoTime told_at{};                // that the host is not there
  std::string told;
  std::string pulse;  // what the coordinator's pulse was at the last look
  // When the look at it began that last found it changed.  lease() counts from here; the
  // coordinator's silence_limit() from later, when that same beat arrived.
  MonoTime pulse_at{};
  std::optional<MonoTime> asked_at;  // when the look that is under way began
  // When a tick was last noticed to be late, once after each contact.
  std::optional<MonoTime> woke_at;
  // Having stood still, the node has asked whether it is still part of its round; since when.
  std::optional<MonoTime> asks_since;
  std::deque<MonoTime> resumes;  // when each was sent that has no answer yet, on this connection
  // It has come to another of several endpoints with workers: until the coordinator there has said
  // that enough nodes of the round have, no pulse renews a lease.
  bool awaits_continue = false;
  bool is_first_try = false;  // of the endpoint at which the connection was lost
  MonoTime last_tick{};
  // Of the workers of an incarnation that was cut off, while they are being stopped.
  std::optional<MonoTime> cut_off_lease;
  MonoTime lease_end = MonoTime::max();  // as it was last passed on
};

namespace event {
// The agent wants a round; its worker store is bound.
struct RoundWanted {
  std::uint16_t store_port = 0;
};
struct WorkerFailed {
  Failure failure;
  bool is_final = false;
  std::optional<TimedOutWait> wait{};
};
// What the agent has found out after that, or after a NotifyInspect.
struct WorkersInspected {
  Findings findings;
};
struct WorkersSucceeded {};
// This node was told to stop; it goes on stopping its workers.
struct Leaving {
  std::string why;
  int signal = 0;
};
// The agent is done, and no worker lives: the last that happens.
struct Finished {};
// The connection is there, with the will that Connect asked for.
struct Connected {
  std::string address;      // where the others can reach this node
  std::string coordinator;  // a name that no other coordinator has
  bool is_at_daemon = false;
  bool is_own_host = false;
  std::vector<std::string> addresses{};  // from which its workers may connect
  std::string pulse{};                   // as it was when the connection was made; empty: not known
  std::vector<Died> died{};              // agents of the run, on this machine
};
// One attempt has failed; `is_final` where trying again would fail the same way, `is_refused` where
// the machine of the endpoint says that no process listens there.
struct ConnectFailed {
  std::string why;
  bool is_final = false;
  bool is_refused = false;
};
struct ConnectionLost {
  std::string why;
  bool is_mute = false;  // it may be there: no answer has come
};
// What this agent hosts has ended, and no other part of the agent has.
struct HostFailed {
  std::string why;
};
struct Heard {
  Command command;
};
struct PulseSeen {
  std::string pulse;
};
struct Tick {
  // Where this agent hosts, and the host may change: when enough nodes were last heard to see it
  // (runs::heard_at()).  Without it the hosting node's lease is not renewed.
  std::optional<MonoTime> heard_at{};
};
}  // namespace event
using Event = std::variant<event::RoundWanted, event::WorkerFailed, event::WorkersInspected,
                           event::WorkersSucceeded, event::Leaving, event::Finished,
                           event::Connected, event::ConnectFailed, event::ConnectionLost,
                           event::HostFailed, event::Heard, event::PulseSeen, event::Tick>;

namespace action {
// Make one attempt to connect as the node `node`, on its connection of that number, `after` so
// long.
struct Connect {
  std::string node;
  std::uint64_t connection = 0;
  Duration after{};
  std::optional<Endpoint> place{};  // nothing: the endpoint that the user gave
  // It is this node's own, which opens its server there: its number among the stand-ins, from 1.
  std::uint64_t stand_in = 0;
  Duration timeout{};  // zero: as it is where there is only one place
};
// See whether the run is at another place, and which of the two is to have it.
struct Knock {
  std::vector<std::optional<Endpoint>> places;
};
struct Disconnect {};
struct Post {
  Message message;
};
// Say that this node lives, and look whether the coordinator does.  The next one comes when this
// one is answered, or its connection given up.
struct Heartbeat {
  Message message;
};
struct NotifyRound {
  command::Round round;
};
struct NotifyInspect {
  command::Inspect inspect;
};
struct NotifyTakeStacks {
  command::TakeStacks take;
};
struct NotifyStop {
  command::Stop stop;
  // The lease of these workers: they must be dead by then, whatever the grace.
  std::optional<MonoTime> kill_by{};
};
// No worker of this node may live after `end` unless it is renewed; MonoTime::max(): none lives, or
// no other node counts on their end.  For what holds the lease while the agent stands still.
struct RenewLease {
  MonoTime end{};
};
// The run has too few nodes since this loss.
struct NotifyWaiting {
  std::string why;
};
struct NotifyEnd {
  command::End end;
};
struct NotifyFailure {
  std::string why;
  std::optional<MonoTime> kill_by{};  // as of NotifyStop
};
struct NotifyUser {
  std::string text;
};
}  // namespace action
using Action = std::variant<action::Connect, action::Knock, action::Disconnect, action::Post,
                            action::Heartbeat, action::NotifyRound, action::NotifyInspect,
                            action::NotifyTakeStacks, action::NotifyStop, action::RenewLease,
                            action::NotifyWaiting, action::NotifyEnd, action::NotifyFailure,
                            action::NotifyUser>;

struct Step {
  State state;
  std::vector<Action> actions;
};

[[nodiscard]] Step step(State state, const Event& event, Now now, const Config& config);

// What this incarnation of the node is called: its queue, its will, the sender of its messages.
std::string node_id(const State& state, const Config& config);

// What its guardian says for this node, on a connection of its own, once it has ended the workers
// of an agent that was killed.  It may change with every step.
Message last_message(const State& state, const Config& config, const std::string& why);

// What a later agent of its machine is to know of this node, should it die without a word; it may
// change with every step.  Nothing where no other host counts on that.
std::optional<Died> memory(const State& state, const Config& config);

// What a node has to say at its end that has no connection to say it on, or whose coordinator goes
// with it: the others would wait for its workers, which are dead.  Nothing where the run is over,
// where no other node can host it, or where it is enough that Finished says it.  To be asked before
// that.
struct UnsaidLeft {
  Message message;
  std::vector<std::optional<Endpoint>> places;  // where the run may be, as in Knock
};
std::optional<UnsaidLeft> unsaid_left(const State& state, const Config& config, MonoTime now,
                                      bool host_goes = false);

// Whether this node hosts the run when its turn among the stand-ins of the last round comes.
bool has_turn(const State& state, const Config& config);

// When the next Tick is due; it may change with every step.
MonoTime next_tick(const State& state, const Config& config);

// From its last contact, how long after it the workers of this node must be dead: a tenth of the
// silence limit less than the coordinator waits before it goes on without them.
Duration lease(const State& state, const Config& config);

// From its last contact, how long after it they begin to be stopped: half of the silence limit.  A
// node without workers is in no hurry.
Duration contact_limit(const State& state, const Config& config);

}  // namespace ddprun::rendezvous::member
