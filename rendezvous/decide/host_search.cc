// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/host_search.h"

#include <algorithm>

namespace ddprun::rendezvous::host_search {
namespace {

// Larger than the number of any stand-in, and a number that JSON carries.
constexpr std::uint64_t kLastOrder = std::uint64_t{1} << 52;

// How long this entry has been of no use.
Duration in_vain(State& state, const HostEntry& newest, MonoTime now) {
  bool is_new = !state.since || state.generation != newest.generation;
  if (is_new) state = {.generation = newest.generation, .since = now};
  return now - *state.since;
}

// Nodes of a round have places of their own to go to, and whoever hosts there claims then.  If none
// of these is left, any of the nodes may host.
Next take_over(Duration waited, Duration patience, const Searcher& searcher) {
  if (!searcher.may_host || searcher.has_turn) return Next::Wait;
  Duration longest = searcher.has_round ? std::max(patience, searcher.lease) : patience;
  return waited >= longest ? Next::Claim : Next::Wait;
}

}  // namespace

Next on_entry(State& state, const HostEntry& newest, const Searcher& searcher, MonoTime now) {
  if (newest.generation > 0 && !newest.is_over) return Next::Reach;
  return take_over(in_vain(state, newest, now), Duration::zero(), searcher);
}

Next on_failure(State& state, const HostEntry& newest, bool is_refused, const Searcher& searcher,
                MonoTime now) {
  // A machine that is silent may be slow, or its run about to have another host.
  bool is_gone = is_refused || newest.is_silent;
  Duration patience = is_gone ? Duration::zero() : searcher.lease;
  return take_over(in_vain(state, newest, now), patience, searcher);
}

bool is_to_claim(const HostEntry& newest, const std::string& node, std::uint64_t round) {
  bool is_own = newest.generation > 0 && newest.node == node;
  return !is_own && (!newest.file || newest.file->round <= round);
}

std::uint64_t order_of(std::uint64_t generation) {
  return kLastOrder - std::min(generation, kLastOrder / 2);
}

}  // namespace ddprun::rendezvous::host_search
