// SPDX-License-Identifier: BSD-3-Clause
//
// The rounds that a run had under another coordinator, which is gone: which of their nodes have
// come back or have left, and whether workers of the others may still live.  A value with no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/run_file.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::coordinator {

// So much is kept of what nodes say of themselves: of no more rounds, and of no more nodes in all.
// Who is not accounted for is waited for until the leases are over.
inline constexpr std::size_t kMostFormerRounds = 64;
inline constexpr std::size_t kMostFormerNames = 20000;

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
  std::set<std::string> left{};  // of these, by the same file: no process of them lived any more
  // Of each round the nodes that are back or have left; by name, since one may come back twice.
  std::map<RoundId, std::set<std::string>> accounted{};
  std::set<RoundId> broken{};  // with which one of these does not go on
  MonoTime until{};
  std::string by{};                       // RoundId::by: its host may live, cut off from this one
  Duration lease{};                       // of its nodes
  std::optional<MonoTime> filed_until{};  // where a run file names them, whoever says what
  // The last contact with that host which `until` counts from; max(): `until` counts from all.
  MonoTime counted = MonoTime::max();
  bool counts_gone = false;  // that of nodes which are gone, too
  // Kept while the run has no node: see FormerRounds.
  bool is_broken = false;
  std::string broken_why{};
  LossKind broken_loss = LossKind::Other;

  RoundId id() const { return {.number = round.value_or(0), .by = by}; }
};

// Nodes of the round before this coordinator of which nothing is known yet.
int missing(const Former& former);
// Their names, where those of all nodes of that round are known.
std::vector<std::string> missing_names(const Former& former);
// So many names stand in all its rounds.
std::size_t names_in(const Former& former);

// What a run file says of a run, to a coordinator that begins at `now`: while the process before it
// lived, so did perhaps the workers.
Former former_of(const RunFile& file, MonoTime now);

struct FormerRounds {
  std::optional<Former> awaited;  // who may come back after a host was lost
  bool is_broken = false;         // one of that round's nodes does not go on with it
  std::string broken_why;         // a sentence; empty: not known
  LossKind broken_loss = LossKind::Other;
  // The last round of which all nodes were accounted for had its host's own node; if not, that host
  // may have begun another one that none of them was told of.
  bool was_host_in_it = true;
  // All nodes of these are accounted for, up to this round.
  std::map<std::string, std::uint64_t> settled_starts;
  // Of starts that have lost all their nodes here: the last round.
  std::map<std::string, std::uint64_t> past_rounds;

  // Begins with what is left of a round, and returns that when the run has no node.
  void begin(Former former);
  // A round that was being stopped has a `stop`.
  std::optional<Former> take(const command::Stop* stop = nullptr);
  // For a run of the same id that begins when this one is over: what is left of a round, and the
  // past ones.
  FormerRounds take_for_next_run();

  // A node comes that was here before this coordinator: so may others have been, whose leases are
  // over at `until` at the latest.  It goes on with its round, or its workers are dead.
  // True: it was the last one that was awaited.
  // Where its host may change, `was_in_round` holds for the last round that it knows.
  [[nodiscard]] bool node_is_back(const std::string& id, const request::Join& join, MonoTime until,
                                  bool goes_on, bool was_in_round);
  // A node of `round`, as far as that is known, has left.  True: it was the last one.
  [[nodiscard]] bool node_has_left(const std::string& id, const std::optional<RoundId>& round);

  // Awaits no more nodes; returns how many have not come back.
  int settle();

  bool is_past(const std::string& run_uuid, std::uint64_t round) const;
  bool awaits(std::uint64_t round) const { return awaited && awaited->round == round; }
  bool awaits_later_than(std::uint64_t round) const {
    return awaited && awaited->round && round < *awaited->round;
  }

 private:
  bool account_for(const std::string& id, const RoundId& round, bool goes_on = false);
  bool account_for_named(const std::string& id);
};

}  // namespace ddprun::rendezvous::coordinator
