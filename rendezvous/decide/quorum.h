// SPDX-License-Identifier: BSD-3-Clause
//
// Which nodes of a run may go on by themselves, where its host may be lost or cut off from some of
// them, so that another one hosts it: those that are more than half of the last round, counted in
// a way that two groups of nodes never both are.  Values and functions of them, for the
// coordinator. rendezvous/PROTOCOL.md has the rules and why they hold.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// A round of which more than half is needed.
struct Body {
  RoundId id;
  int nodes = 0;                             // so many had it
  std::set<std::string, std::less<>> names;  // of them, as far as they are known
  bool is_own = false;                       // this coordinator has formed it: half of it is enough
  MonoTime formed_at = MonoTime::min();  // if it has: a node that knows it has heard it since then
};

// A node of which no process lives, and the last round that it knew.
struct Gone {
  RoundId knows;
  int nodes = 0;                   // that this round had
  std::vector<Unsettled> after{};  // before it
  MonoTime at{};                   // known since then
  // It had seen another coordinator since that round, which may have formed a later one with it.
  bool was_elsewhere = false;
  // Until then it was with the one that formed that round, as far as is known.
  MonoTime contact = MonoTime::min();
  std::string why{};  // "was lost (its agent, pid 7, was killed)"; empty: it has left
  LossKind loss = LossKind::Other;
};

// Of no more nodes is it kept that they are gone.  One that is not known to be gone counts as one
// that may live.
inline constexpr std::size_t kMostGone = 20000;

// A round that too few of its nodes are here for, while others may go on from it.
struct Lack {
  RoundId round;
  int nodes = 0;
  int here = 0;
  int gone = 0;
};

// What a coordinator knows of the rounds that it goes on from.
struct Quorum {
  std::string
      self;  // RoundId::by of this coordinator's rounds; empty: its run's host cannot change
  // The rounds that a group of nodes without this coordinator may still go on from; the last one is
  // its own.  The earlier ones are dropped as enough nodes have heard of later ones.
  std::vector<Body> bodies;
  std::map<std::string, std::uint64_t> heard_of;  // the last of its own rounds, of each node's name
  std::map<std::string, Gone> gone;               // by name
  // The newest round of another coordinator that a node knew which was here, maybe for a moment:
  // nodes that know of none do not begin the run beside it.
  std::optional<Lack> seen{};
  // So often the nodes that are too few here were sent to who may go on with them (may_suffice()).
  int sent_on = 0;
};

bool has_room_for_gone(const Quorum& quorum, const std::string& name);

// A node that is here.
struct Present {
  std::string_view name;
  RoundId knows;                       // the last round that it was told of
  int nodes = 0;                       // that this round had
  MonoTime contact{};                  // the pulse that it has seen last was published then
  bool is_member = true;               // of the present round
  std::span<const Unsettled> after{};  // the rounds before `knows`
};

// Of `nodes`, of which `gone` are known to be gone: how many are enough.  Two groups with nothing
// in common never both are, whatever each knows of nodes that are gone; of a coordinator's own
// round half is enough for it, and is for no other.
int enough(int nodes, int gone, bool is_own);

// The rounds that the nodes which are here may go on from; empty where no node had any.  None:
// they may not, since others may.
std::optional<std::vector<Body>> basis(const Quorum& quorum, std::span<const Present> present);

// No node that lives is needed for going on from these, so that others who know as much might do so
// as well.
bool needs_nobody(const Quorum& quorum, std::span<const Body> basis);

// The rounds that are needed for going on with the workers of this one, which another coordinator
// has formed, with the nodes of each as far as they are here.
Quorum line_of(const Quorum& quorum, const RoundId& round, std::span<const Present> present);

// For workers that live: without the nodes that were elsewhere before they were gone.  New ones
// wait for the leases of a round that such a node may have been in, living ones must not.
Quorum sure(Quorum quorum);

// What they lack, if they may not.
std::optional<Lack> lacking(const Quorum& quorum, std::span<const Present> present);

// This coordinator has formed that round or a later one, and so many of its nodes may be enough for
// it, though for no other: half of them are, and those count that have not heard of it.
bool may_suffice(const Quorum& quorum, const RoundId& round, int nodes);

// A node is here that knows this round of another coordinator.
void note_seen(Quorum& quorum, const RoundId& knows, int nodes);

// A round has been formed from `basis`, of these nodes.
void formed(Quorum& quorum, std::vector<Body> basis, Body round);

// What a node of the next round is told of those that it goes on from.
std::vector<Unsettled> unsettled(std::span<const Body> basis, std::string_view name);

// A node has heard of one of this coordinator's rounds.  True: from now on the others of that round
// need none before it.
bool heard_of(Quorum& quorum, const std::string& name, std::uint64_t round);

// The last time at which enough of the nodes were heard to see this coordinator; none if too few
// are here.
std::optional<MonoTime> heard_at(const Quorum& quorum, std::span<const Present> present);

// The same for the workers of the present round: a node that has come back since is not in it, and
// one that was elsewhere before it was gone makes the round no smaller.
std::optional<MonoTime> heard_in_round_at(const Quorum& quorum, std::span<const Present> present);

}  // namespace ddprun::rendezvous::coordinator
