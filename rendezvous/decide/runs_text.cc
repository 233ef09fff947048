// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/runs_text.h"

#include <map>
#include <utility>

#include "store/base/count.h"

namespace ddprun::rendezvous::runs {
namespace {

// So many runs that wait beside another one are named to it.
constexpr std::size_t kMaxNamed = 3;

std::string describe(const std::string& name, const coordinator::State& run) {
  return "run '" + name + "' (" + count_of(run.nodes.size(), "node") + ")";
}

// All runs, where there are few.
using Place = std::map<std::string, coordinator::State>::const_iterator;
std::pair<Place, Place> neighbours_of(const State& state, const std::string& name) {
  Place first = state.runs.begin();
  Place end = state.runs.end();
  if (state.runs.size() <= kNeighbours) return {first, end};
  Place from = state.runs.find(name);
  Place to = from;
  constexpr std::size_t kEachSide = kNeighbours / 2;
  for (std::size_t i = 0; i < kEachSide && from != first; ++i) --from;
  for (std::size_t i = 0; i < kEachSide && to != end; ++i) ++to;
  return {from, to};
}

}  // namespace

std::string who_is_here(const State& state) {
  std::string text;
  for (const auto& [name, run] : state.runs) {
    text += (text.empty() ? "" : ", ") + describe(name, run);
  }
  return text;
}

std::string who_waits_beside(const State& state, const std::string& name) {
  const coordinator::State& here = state.runs.at(name);
  if (here.phase != coordinator::Phase::Gathering) return "";
  std::string text;
  std::size_t named = 0;
  auto [first, end] = neighbours_of(state, name);
  for (; first != end; ++first) {
    const auto& [other, run] = *first;
    bool waits = run.phase == coordinator::Phase::Gathering && !run.nodes.empty();
    if (other == name || !waits || run.settings != here.settings) continue;
    text += (text.empty() ? "" : ", ") + describe(other, run);
    if (++named == kMaxNamed) break;
  }
  return text;
}

std::string beyond_reach_text(const Endpoint& rival) {
  return "another host of the run, at " + to_string(rival) +
         ", knocks here, and no connection to it comes about (a firewall, or an address that other "
         "machines do not reach?): the run stays here, and that one is asked to come";
}

std::string stuck_text(int nodes) {
  return "the run goes to where " + count_of(static_cast<std::size_t>(nodes), "node") +
         (nodes == 1 ? " waits that it needs and that does" : " wait that it needs and that do") +
         " not reach this place";
}

std::string not_reached_text(const Endpoint& host) {
  return "the run is to have another host, since no connection to " + to_string(host) +
         " comes about from there (a firewall, or an address that other machines do not reach?)";
}

}  // namespace ddprun::rendezvous::runs
