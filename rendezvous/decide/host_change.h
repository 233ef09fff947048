// SPDX-License-Identifier: BSD-3-Clause
//
// A run whose host may be lost, or cut off from some of its nodes, so that another one hosts it:
// which nodes may go on (quorum.h), when another coordinator's workers are dead, and when this one
// must take itself for the one that is cut off.  rendezvous/PROTOCOL.md has the rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/decide/run_state.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

inline bool may_change_host(const State& state) {
  return !state.quorum.self.empty();
}

// A round has been before the next one, so that enough of its nodes must be heard.
inline bool goes_on_from_a_round(const State& state) {
  return may_change_host(state) && (state.quorum.seen || !state.quorum.bodies.empty());
}

// The nodes have several endpoints, between which the run may move.
inline bool may_move(const State& state) {
  return may_change_host(state) && !state.settings.endpoints.empty();
}

// Of a node that comes.
RoundId known_round(const request::Join& join);
// When a pulse that a node has seen was published, by this clock: it is that time.
MonoTime published_at(std::int64_t pulse, MonoTime now);
void note_contact_elsewhere(State& state, const request::Join& join, MonoTime now);

// A node has heard of this round of ours.  True: the round needs none before it from now on.
bool note_round(State& state, const std::string& id, Node& node, std::uint64_t round);
// What a node that is not here knew has nothing to do with the rounds of those that are: it was
// part of a start of the run before this one, and its last word has come late.
bool is_of_another_start(const State& state, const std::string& id, const request::Left& left);
// No process of it lives.  Another coordinator may have counted on it until then.
void note_gone(State& state, const std::string& id, const request::Left& left, MonoTime now);

// Of the nodes that rounds known here had, those are gone whose agents have died on the machines
// of nodes that are here, by what these say.  Their workers may live.
void note_died(State& state);

// The rounds that a next one may go on from, where enough of their nodes have been heard lately;
// see quorum.h.
std::optional<std::vector<Body>> basis_now(const State& state, MonoTime now);
// A run with several endpoints begins at the first of them only, and so does one that is begun anew
// since no node of its last round lives: no node would keep two groups from beginning one each.
bool waits_for_first_endpoint(const State& state);
// A node that comes has lately not reached this one of its endpoints.
bool has_missed(const request::Join& join, const Endpoint& place);
// How many of the nodes here have lately said that they do not reach this one of their endpoints;
// while none has workers, which would rather go where the others are.
int stuck_from(const State& state, const Endpoint& place, MonoTime now);
// So nobody would get there: they stay for now.
bool is_beyond_reach(const State& state, const Endpoint& place, MonoTime now);
// Too few nodes have been here for long, and with those that are there, and do not reach this
// place, they would be enough: the run is to be there.  Not its first round.
bool is_wanted_at(const State& state, const Endpoint& place, int stuck, MonoTime now);
// Of these: what too few nodes are here for.
std::optional<Lack> lacking_now(const State& state);
// Fewer than all nodes do not begin a run before: another host may have been here, which has lost
// what it knew with its machine.  By then its workers are dead, or their present host has knocked.
MonoTime first_round_fence(const State& state);
// The last round that the nodes here know, if there would be enough of them for the next one, but
// too few to go on, and for long: twice as long each time that they have come back from where they
// were sent for this (quorum.h).
std::optional<RoundId> lacking_for_long(const State& state, MonoTime now);
inline bool may_go_on(const State& state, MonoTime now) {
  return basis_now(state, now).has_value();
}
// No round begins before it, with other coordinators' workers that may live.
MonoTime fence(const State& state);
// Their workers are dead: each node that they had is accounted for, or its lease is over.  `until`:
// as far as they count from contacts that were no later.
void forget_contacts(State& state, MonoTime until = MonoTime::max());
// How long the nodes of the round before are awaited, if their host may live: as if of nodes that
// are gone nothing had been heard yet.
void set_former_end(State& state);
// That is over.  True: but the nodes here are too few without some that are gone, and it is later,
// since these were with another coordinator until later.
bool put_off_former_end(State& state, MonoTime now);

// The first members by group rank are named in a round, without the host's own node.
struct Seat;
void name_stand_ins(const State& state, command::Round& round, const std::vector<Seat>& seats);
// Those of the round that runs.
std::vector<StandIn> stand_ins_of(const State& state);
// Whether enough nodes are left without the host's own, and one of them can host.
bool can_leave_to_others(const State& state);
// What a node is told of the rounds that this one goes on from.
void name_unsettled(command::Round& round, const std::vector<Body>& from, const std::string& id);
// For people: who hosts the run now, and what has become of who did; or that others may go on
// beside it, where the user has chosen a quorum.  Empty where no other host had these rounds.
std::string host_text(const State& state, const std::vector<Body>& from);
void note_formed(State& state, std::vector<Body> from, const RoundId& id, MonoTime now);

// Whether enough nodes are heard to see this coordinator.
void look_at_contacts(State& state, MonoTime now);
// A round is out, and so few of its nodes are heard that others may go on without it: nothing that
// is said here renews a lease.
bool is_alone(const State& state, MonoTime now);
// This process stood still for so long.  Beyond the lease, fresh nodes may have begun the run anew
// at the endpoint, where no word of this host came meanwhile (first_round_fence()).
void note_standstill(State& state, Duration stood_still, MonoTime now);
// Whether they have is not known yet: nothing that is said here renews a lease, so that workers
// stay held, and no round begins.
bool is_in_doubt(const State& state, MonoTime now);
// And it is stopped: not at once after a standstill of this process, since the others may have
// stood still as well.
bool must_stop_alone(const State& state, MonoTime now);

// A round of another coordinator goes on here, and one of its nodes does not.
bool is_adopted_broken(const State& state);
// What stops a round that was taken over: which node broke it.
command::Stop stop_of_broken(const State& state);

// The run may be given to another place that has it, or is to have it: no round is out here, or,
// where the run may move, too few of its nodes are heard.
bool may_give_way(const State& state, MonoTime now);
// A node has been heard lately.
bool is_anyone_heard(const State& state, MonoTime now);

// One more than the number of the last round that was formed here, if it is the last here and is to
// be gone on from; else 0.
std::uint64_t last_formed(const State& state);

// The last round was formed here, or goes on here, and enough of its nodes are heard: the run is
// here.
bool holds_run(const State& state, MonoTime now);

}  // namespace ddprun::rendezvous::coordinator
