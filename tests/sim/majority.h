// SPDX-License-Identifier: BSD-3-Clause
//
// A majority that can talk goes on: where more than half of the nodes of the last round live, reach
// each other and know that round, and it does not run, they have another one within a time that the
// settings give, however many others are lost, in whichever ways.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::sim {

class World;
class Node;
struct PublishedRound;

class Majority {
 public:
  explicit Majority(World& world) : world_(world) {}

  // How things are now; to be called several times a second.
  void look();

 private:
  // Who else is there: each change of that may cost those who can talk as much as a lost node.
  using Surroundings = std::vector<int>;

  std::set<const Node*> who_can_talk(const PublishedRound& round) const;
  bool is_enough(const std::set<const Node*>& nodes, const PublishedRound& round) const;
  bool can_count_on_it(const std::set<const Node*>& nodes) const;
  bool runs_or_ends(const std::set<const Node*>& nodes, std::size_t index) const;
  Surroundings surroundings() const;
  Duration patience() const;
  Duration longest_lease() const;

  World& world_;
  std::pair<std::size_t, std::set<const Node*>> watched_;  // the last round, and who can talk
  std::optional<Duration> since_;
  Surroundings around_;
  int changes_ = 0;
};

}  // namespace ddprun::sim
