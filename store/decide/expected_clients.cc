// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <algorithm>
#include <utility>

namespace ddprun::store {

void ExpectedClients::expect(ClientId announcer, const std::string& host, std::string name,
                             std::uint32_t pid) {
  name.resize(std::min(name.size(), kMostNameBytes));
  Names& names = announced_[announcer];
  auto found = names.find(name);
  if (found != names.end()) {
    drop_from_index(found->second);
  } else if (expected_count_ == kMostExpected) {
    if (names.empty()) announced_.erase(announcer);
    return;
  } else {
    found = names.emplace(std::move(name), Expected{}).first;
    ++expected_count_;
  }
  found->second = {.host = host, .pid = pid};
  by_pid_.emplace(pid, &*found);
}

void ExpectedClients::connected(const std::string& host, std::uint32_t pid) {
  auto [begin, end] = by_pid_.equal_range(pid);
  while (begin != end) {
    Expected& expected = begin->second->second;
    if (expected.host != host) {
      ++begin;
      continue;
    }
    expected.has_connected = true;
    begin = by_pid_.erase(begin);
  }
}

void ExpectedClients::forget(ClientId announcer) {
  auto found = announced_.find(announcer);
  if (found == announced_.end()) return;
  for (const auto& [name, expected] : found->second) drop_from_index(expected);
  expected_count_ -= found->second.size();
  announced_.erase(found);
}

void ExpectedClients::clear() {
  *this = ExpectedClients();
}

std::vector<ExpectedClients::Missing> ExpectedClients::missing(std::size_t max_count) const {
  std::vector<Missing> found;
  for (const auto& [pid, entry] : by_pid_) {
    if (found.size() == max_count) break;
    found.push_back({.name = entry->first, .host = entry->second.host, .pid = pid});
  }
  return found;
}

void ExpectedClients::drop_from_index(const Expected& expected) {
  if (expected.has_connected) return;
  auto [begin, end] = by_pid_.equal_range(expected.pid);
  while (begin != end && &begin->second->second != &expected) ++begin;
  if (begin != end) by_pid_.erase(begin);
}

}  // namespace ddprun::store
