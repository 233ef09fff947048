// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/ranks.h"

#include <map>

namespace ddprun::rendezvous {

std::vector<Assignment> assign_ranks(std::span<const Participant> participants) {
  std::vector<Assignment> assignments;
  assignments.reserve(participants.size());
  int world_size = 0;
  std::map<std::string, int> role_world_sizes;
  for (const Participant& participant : participants) {
    int& role_world_size = role_world_sizes[participant.role];
    assignments.push_back({.group_rank = static_cast<int>(assignments.size()),
                           .base_rank = world_size,
                           .role_base_rank = role_world_size});
    world_size += participant.local_world_size;
    role_world_size += participant.local_world_size;
  }
  for (std::size_t i = 0; i < participants.size(); ++i) {
    assignments[i].group_world_size = static_cast<int>(participants.size());
    assignments[i].world_size = world_size;
    assignments[i].role_world_size = role_world_sizes[participants[i].role];
  }
  return assignments;
}

}  // namespace ddprun::rendezvous
