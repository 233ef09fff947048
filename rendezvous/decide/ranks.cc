// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/ranks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

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

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Takes the run of digits at the front of `text`, without its leading zeros.
std::string_view take_number(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

constexpr std::size_t kNobody = std::numeric_limits<std::size_t>::max();

}  // namespace

bool comes_before_naturally(std::string_view left, std::string_view right) {
  while (!left.empty() && !right.empty()) {
    if (is_digit(left.front()) && is_digit(right.front())) {
      std::string_view a = take_number(left);
      std::string_view b = take_number(right);
      if (a.size() != b.size()) return a.size() < b.size();
      if (a != b) return a < b;
    } else {
      if (left.front() != right.front()) return left.front() < right.front();
      left.remove_prefix(1);
      right.remove_prefix(1);
    }
  }
  return left.size() < right.size();
}

std::vector<std::size_t> seat(std::span<const Claim> claims) {
  std::vector<std::size_t> order(claims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return claims[i].arrival; });

  std::vector<std::size_t> seats(claims.size(), kNobody);
  std::vector<bool> is_seated(claims.size(), false);
  auto seat_by = [&](std::optional<int> Claim::*claimed) {
    for (std::size_t i : order) {
      const std::optional<int>& rank = claims[i].*claimed;
      if (is_seated[i] || !rank || *rank < 0) continue;
      auto place = static_cast<std::size_t>(*rank);
      if (place >= seats.size() || seats[place] != kNobody) continue;
      seats[place] = i;
      is_seated[i] = true;
    }
  };
  seat_by(&Claim::wanted);
  seat_by(&Claim::previous);

  std::ranges::stable_sort(order, [&](std::size_t left, std::size_t right) {
    return comes_before_naturally(claims[left].host, claims[right].host);
  });
  auto next = order.begin();
  for (std::size_t& place : seats) {
    if (place != kNobody) continue;
    while (is_seated[*next]) ++next;
    place = *next++;
  }
  return seats;
}

}  // namespace ddprun::rendezvous
