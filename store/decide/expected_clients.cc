// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <algorithm>
#include <utility>

namespace ddprun::store {

void Roll::expect(ClientId announcer, const std::string& host, std::string who, std::uint32_t pid) {
  who.resize(std::min(who.size(), kMostNameBytes));
  Names& names = announced_[announcer];
  auto found = names.find(who);
  if (found != names.end()) {
    drop_from_index(found->second);
  } else if (expected_count_ == kMostExpected) {
    if (names.empty()) announced_.erase(announcer);
    return;
  } else {
    found = names.emplace(std::move(who), Expected{}).first;
    ++expected_count_;
  }
  found->second = {.host = host, .pid = pid};
  by_pid_.emplace(pid, &*found);
}

void Roll::came(const std::string& host, std::uint32_t pid) {
  auto [begin, end] = by_pid_.equal_range(pid);
  while (begin != end) {
    Expected& expected = begin->second->second;
    if (expected.host != host) {
      ++begin;
      continue;
    }
    expected.has_come = true;
    begin = by_pid_.erase(begin);
  }
}

void Roll::forget(ClientId announcer) {
  auto found = announced_.find(announcer);
  if (found == announced_.end()) return;
  for (const auto& [who, expected] : found->second) drop_from_index(expected);
  expected_count_ -= found->second.size();
  announced_.erase(found);
}

void Roll::clear() {
  *this = Roll();
}

std::vector<Roll::Absentee> Roll::absent(std::size_t max_count) const {
  std::vector<Absentee> absentees;
  for (const auto& [pid, entry] : by_pid_) {
    if (absentees.size() == max_count) break;
    absentees.push_back({.who = entry->first, .host = entry->second.host, .pid = pid});
  }
  return absentees;
}

void Roll::drop_from_index(const Expected& expected) {
  if (expected.has_come) return;
  auto [begin, end] = by_pid_.equal_range(expected.pid);
  while (begin != end && &begin->second->second != &expected) ++begin;
  if (begin != end) by_pid_.erase(begin);
}

}  // namespace ddprun::store
