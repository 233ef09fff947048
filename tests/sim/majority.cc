// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/majority.h"

#include <algorithm>
#include <map>

#include "tests/sim/node.h"
#include "tests/sim/oracle.h"
#include "tests/sim/world.h"

namespace ddprun::sim {

using std::chrono::seconds;

namespace {

// Its agent is, whatever holds its workers.
bool is_well(const Node& node) {
  bool is_over = node.exit_code() || node.verdict() || node.failure() || node.was_signalled();
  return node.process().is_alive && !node.process().is_frozen && !is_over;
}

}  // namespace

// Those on machines that are not cut off, in that part of the network where more of them are.
std::set<const Node*> Majority::who_can_talk(const PublishedRound& round) const {
  std::set<const Node*> parts[2];
  for (const Node* node : round.members) {
    const Machine& machine = world_.machines[static_cast<std::size_t>(node->plan().machine)];
    bool is_whole = machine.is_up && !machine.is_cut_up && !machine.is_cut_down;
    const auto& last = node->member().last;
    bool knows = last && last->number == round.number && last->by == round.by;
    if (is_whole && knows && is_well(*node)) parts[machine.part].insert(node);
  }
  return parts[0].size() >= parts[1].size() ? parts[0] : parts[1];
}

bool Majority::is_enough(const std::set<const Node*>& nodes, const PublishedRound& round) const {
  if (2 * nodes.size() <= round.members.size()) return false;
  return static_cast<int>(nodes.size()) >= (*nodes.begin())->plan().settings.min_nodes;
}

// Nor may others go on from a round before it.
bool Majority::can_count_on_it(const std::set<const Node*>& nodes) const {
  struct Unsettled {
    int nodes = 0;
    int know = 0;
    int were_in = 0;
  };
  std::map<std::pair<std::string, std::uint64_t>, Unsettled> rounds;
  for (const Node* node : nodes) {
    for (const auto& before : node->member().last->after) {
      Unsettled& its = rounds[{before.id.by, before.id.number}];
      its.nodes = before.nodes;
      ++its.know;
      if (before.was_in) ++its.were_in;
    }
  }
  return std::ranges::all_of(rounds, [&](const auto& each) {
    bool is_settled = each.second.know < static_cast<int>(nodes.size());
    return is_settled || 2 * each.second.were_in > each.second.nodes;
  });
}

// Who has succeeded begins nothing again.
bool Majority::runs_or_ends(const std::set<const Node*>& nodes, std::size_t index) const {
  const PublishedRound& round = world_.oracle.round(index);
  bool is_done = std::ranges::any_of(round.members,
                                     [index](const Node* node) { return node->done() == index; });
  return is_done || (nodes.size() == round.members.size() && world_.oracle.is_whole(index));
}

Majority::Surroundings Majority::surroundings() const {
  Surroundings all;
  for (const Machine& machine : world_.machines) {
    all.push_back((machine.is_up ? 1 : 0) + (machine.is_cut_up ? 2 : 0) +
                  (machine.is_cut_down ? 4 : 0) + (machine.part != 0 ? 8 : 0));
  }
  for (const auto& node : world_.nodes) all.push_back(is_well(*node) ? 1 : 0);
  return all;
}

Duration Majority::longest_lease() const {
  Duration lease{};
  for (const NodePlan& plan : world_.scenario.nodes) lease = std::max(lease, plan.policy.lease());
  return lease;
}

// A host that is lost as soon as the others have come to it is silent for a lease, and may have
// renewed others' for more than half of one; then come the workers' stop, the search for the next
// host and its last call.
Duration Majority::patience() const {
  const Scenario& scenario = world_.scenario;
  Duration needed = longest_lease() * 13 / 5 + seconds(5) + 20 * scenario.max_delay;
  if (scenario.slow_stop_percent > 0) needed += scenario.grace;
  bool is_one_leaving =
      std::ranges::any_of(world_.nodes, [](const auto& node) { return node->was_signalled(); });
  if (is_one_leaving) needed += scenario.grace + rendezvous::kLeaveMargin;
  return needed;
}

void Majority::look() {
  if (world_.oracle.rounds_count() == 0) return;
  const std::size_t index = world_.oracle.rounds_count() - 1;
  const PublishedRound& round = world_.oracle.round(index);
  std::set<const Node*> nodes = who_can_talk(round);
  bool is_judged = is_enough(nodes, round) && can_count_on_it(nodes) && !runs_or_ends(nodes, index);
  if (!is_judged) return since_.reset();
  Surroundings around = surroundings();
  if (!since_ || watched_ != std::pair(index, nodes)) {
    since_ = world_.time.now();
    watched_ = {index, nodes};
    changes_ = 0;
  } else if (around != around_) {
    ++changes_;
  }
  around_ = std::move(around);
  Duration may = patience() + changes_ * 2 * longest_lease();
  Duration waited = world_.time.now() - *since_;
  if (waited > may) {
    world_.violate(std::to_string(nodes.size()) + " of the " +
                   std::to_string(round.members.size()) + " nodes of round " +
                   std::to_string(round.number) + " can talk, and have no other round");
  }
}

}  // namespace ddprun::sim
