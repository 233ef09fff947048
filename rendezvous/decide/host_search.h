// SPDX-License-Identifier: BSD-3-Clause
//
// Where no endpoint names a fixed host, who hosts a run is written down in a registry
// (rendezvous/host_registry.h).  What an agent does with the newest entry there: it joins the host
// that is named, waits, or claims the next generation to host the run itself; and when a host
// writes itself down.  Pure: the caller has the clock.
//
// None of this makes two runs out of one.  A claimer takes over the run file, so it forms no round
// without enough of the nodes named there; and before a run's very first round begins its host has
// noted those nodes in the newest entry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/decide/host_entry.h"
#include "store/base/time.h"

namespace ddprun::rendezvous::host_search {

// The node that looks for the host.
struct Searcher {
  std::string node;  // member::Config::name
  bool may_host = true;
  bool has_round = false;  // it has been in a round of the run
  // It is a stand-in of that round, so it hosts when its turn comes, at its own place.
  bool has_turn = false;
  Duration lease{};  // of the workers of the run; what it goes by itself where it knows of none
};

// What has been tried in vain, from one attempt to the next.
struct State {
  std::uint64_t generation = 0;
  std::optional<MonoTime> since{};  // when this entry was first found to be of no use
};

enum class Next : std::uint8_t {
  Reach,  // connect to the host that the entry names
  Claim,  // host the run, if the next generation can be claimed
  Wait,   // try again later
};

// The entry has been read.
[[nodiscard]] Next on_entry(State& state, const HostEntry& newest, const Searcher& searcher,
                            MonoTime now);

// The host that it names was not reached.  `is_refused`: its machine says that no process listens
// there, or another program does.  A host listens before it claims, so this one is gone, or has
// left the run to another one.  One that the registry has not heard of for long is given up, too.
[[nodiscard]] Next on_failure(State& state, const HostEntry& newest, bool is_refused,
                              const Searcher& searcher, MonoTime now);

// Whether the host `node`, which has the run and whose last round `round` is, writes itself down
// as the next generation: another one stands there, and has not had a later round.
[[nodiscard]] bool is_to_claim(const HostEntry& newest, const std::string& node,
                               std::uint64_t round);

// request::Knock::order of the host that has claimed `generation`: after all stand-ins, and of two
// such hosts the one with the newer entry comes first, since nodes that look for the run find it.
[[nodiscard]] std::uint64_t order_of(std::uint64_t generation);

}  // namespace ddprun::rendezvous::host_search
