// SPDX-License-Identifier: BSD-3-Clause
//
// One node's side of a run of several nodes: when it connects, what it says to the coordinator,
// what of the answers its agent is told, and when it must take itself for cut off.  Pure, like
// coordinator.h: step() returns what is to be done, rendezvous/network.h does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/decide/member_state.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_places.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::member {

namespace event {
// The agent wants a round; its worker store is bound.
struct RoundWanted {
  std::uint16_t store_port = 0;
  // Where the run went on, as an agent knew it that has died on this machine.
  RunPlaces known{};
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
// All workers of this round run here.
struct WorkersUp {
  std::uint64_t round = 0;
};
struct WorkersSucceeded {};
// This node was told to stop; it goes on stopping its workers.
struct Leaving {
  std::string why;
  int signal = 0;
};
// After that none of its workers lives any more, and none will.
struct WorkersGone {};
// The agent is done, and no worker lives: the last that happens.
struct Finished {};
// The coordinator in this agent has formed this round, of which no node has been told yet.  Should
// this node be killed before it is told itself, or go elsewhere, others must not take it for one
// that knows only the round before.
struct Formed {
  command::Round round;
};
// The connection is there, with the will that Connect asked for.
struct Connected {
  std::string address;      // where the others can reach this node
  std::string coordinator;  // a name that no other coordinator has
  bool is_at_daemon = false;
  bool is_own_host = false;
  std::vector<std::string> addresses{};  // from which its workers may connect
  std::vector<Died> died{};              // agents of the run, on this machine
  std::optional<Endpoint> host_at{};     // where a registry has the host
};
// Of the run, on this machine, so many agents have died by now, or have left no worker.
struct DiedSeen {
  std::vector<Died> died;
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
  // By a packet that may be of anybody on the way, where a process that ends closes what it has.
  bool is_reset = false;
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
using Event =
    std::variant<event::RoundWanted, event::WorkerFailed, event::WorkersInspected, event::WorkersUp,
                 event::WorkersSucceeded, event::Leaving, event::WorkersGone, event::Finished,
                 event::Formed, event::Connected, event::ConnectFailed, event::ConnectionLost,
                 event::HostFailed, event::Heard, event::PulseSeen, event::DiedSeen, event::Tick>;

namespace action {
// Make one attempt to connect as the node `node`, on its connection of that number, `after` so
// long.
struct Connect {
  std::string node;
  std::uint64_t connection = 0;
  Duration after{};
  std::optional<Endpoint> place{};  // nothing: the endpoint that the user gave
  std::string of{};  // the node whose coordinator is to be there, and no other; empty: any
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
struct NotifyTakeBundle {
  command::TakeBundle take;
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
                            action::NotifyTakeStacks, action::NotifyTakeBundle, action::NotifyStop,
                            action::RenewLease, action::NotifyWaiting, action::NotifyEnd,
                            action::NotifyFailure, action::NotifyUser>;

struct Step {
  State state;
  std::vector<Action> actions;
};

[[nodiscard]] Step step(State state, const Event& event, Now now, const Config& config);

}  // namespace ddprun::rendezvous::member
