// SPDX-License-Identifier: BSD-3-Clause
//
// One node's side of a run of several nodes: when it connects, what it says to the coordinator,
// what of the answers its agent is told, and when it must take itself for cut off.  Pure, like
// coordinator.h: step() returns what is to be done, rendezvous/network.h does it.
#pragma once

#include <algorithm>
#include <cstdint>
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
  // Nobody counts on this node.  If there is no host, the run may have ended before it came, and
  // else the other nodes fail.
  bool is_spare = false;

  // How long a lost or absent host is tried.
  Duration patience() const { return std::min(read_timeout, node.policy.join_timeout); }
};

enum class Link : std::uint8_t { Down, Connecting, Up };

struct State {
  Link link = Link::Down;
  std::uint64_t incarnation = 0;       // counts connections tried: each is that of a new node
  bool is_joined = false;              // the coordinator knows this incarnation
  bool wants_round = false;            // the agent's workers are down
  bool is_over = false;                // nothing is said or told any more
  std::uint16_t store_port = 0;        // of the worker store for the round that is wanted
  std::string address;                 // where the others can reach this node
  std::optional<command::Round> last;  // the last round this node was in
  int restart_count = 0;               // as last heard
  std::optional<command::KeepAlive> keep_alive;  // where the run's settings are not this node's
  MonoTime joined_at{};                          // when this incarnation said so
  MonoTime connecting_since{};
  MonoTime told_at{};  // that the host is not there
  std::string told;
  std::string pulse;  // what the coordinator's pulse was at the last look
  // When the look at it began that last found it changed.  lease() counts from here; the
  // coordinator's silence_limit() from later, when that same beat arrived.
  MonoTime pulse_at{};
  std::optional<MonoTime> asked_at;  // when the look that is under way began
  MonoTime last_tick{};
};

namespace event {
// The agent wants a round; its worker store is bound.
struct RoundWanted {
  std::uint16_t store_port = 0;
};
struct WorkerFailed {
  Failure failure;
  int exit_code = 1;
  bool is_final = false;
};
struct WorkersSucceeded {};
struct Leaving {
  std::string why;
  int signal = 0;
};
// The connection is there, with the will that Connect asked for.
struct Connected {
  std::string address;  // where the others can reach this node
};
// One attempt has failed; `is_final` where trying again would fail the same way.
struct ConnectFailed {
  std::string why;
  bool is_final = false;
};
struct ConnectionLost {
  std::string why;
};
struct Heard {
  Command command;
};
struct PulseSeen {
  std::string pulse;
};
struct Tick {};
}  // namespace event
using Event = std::variant<event::RoundWanted, event::WorkerFailed, event::WorkersSucceeded,
                           event::Leaving, event::Connected, event::ConnectFailed,
                           event::ConnectionLost, event::Heard, event::PulseSeen, event::Tick>;

namespace action {
// Make one attempt to connect as the node `node`, `after` so long.
struct Connect {
  std::string node;
  Duration after{};
};
struct Disconnect {};
struct Post {
  Message message;
};
// Say that this node lives, and look whether the coordinator does.
struct Heartbeat {
  Message message;
};
struct NotifyRound {
  command::Round round;
};
struct NotifyStop {
  command::Stop stop;
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
};
struct NotifyUser {
  std::string text;
};
}  // namespace action
using Action = std::variant<action::Connect, action::Disconnect, action::Post, action::Heartbeat,
                            action::NotifyRound, action::NotifyStop, action::NotifyWaiting,
                            action::NotifyEnd, action::NotifyFailure, action::NotifyUser>;

struct Step {
  State state;
  std::vector<Action> actions;
};

[[nodiscard]] Step step(State state, const Event& event, Now now, const Config& config);

// What this incarnation of the node is called: its queue, its will, the sender of its messages.
std::string node_id(const State& state, const Config& config);

// When the next Tick is due; it may change with every step.
MonoTime next_tick(const State& state, const Config& config);

// How long this node bears silence: half a period less than the coordinator, so that its workers
// have ended before the others begin a round without them.
Duration lease(const State& state, const Config& config);

}  // namespace ddprun::rendezvous::member
