// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <algorithm>

namespace ddprun::store {
namespace {

std::size_t cost_of(const std::string& name) {
  return name.size() + cost::kAnnouncement;
}

}  // namespace

void ExpectedClients::expect(ClientId announcer, const std::string& host,
                             std::string_view said_name, std::uint32_t pid) {
  std::string name(said_name.substr(0, kMostNameBytes));  // what was cut off takes no memory
  auto own = announced_.find(announcer);
  std::size_t own_count = own != announced_.end() ? own->second.size() : 0;
  if (own_count > 0) {
    if (auto found = own->second.find(name); found != own->second.end()) {
      leave_group(found->second);
      return join_group(*found, {pid, host});
    }
  }
  bool has_room = own_count < kMostOfOne && expected_count_ < kMostExpected &&
                  cost_of(name) <= budget_.room_bytes(announcer);
  if (!has_room) return;
  budget_.add(cost_of(name));
  ++expected_count_;
  join_group(*announced_[announcer].emplace(std::move(name), Expected{}).first, {pid, host});
}

bool ExpectedClients::is_missing(std::uint32_t pid) const {
  auto found = missing_.lower_bound({pid, ""});
  return found != missing_.end() && found->first.first == pid;
}

void ExpectedClients::connected(const std::string& host, std::uint32_t pid, MonoTime at) {
  auto found = missing_.find({pid, host});
  if (found == missing_.end()) return;
  Group& group = *found->second;
  group.has_connected = true;
  last_connected_at_ = std::max(last_connected_at_, at);
  missing_count_ -= group.members.size();
  missing_.erase(found);
}

std::optional<MonoTime> ExpectedClients::all_connected_at() const {
  bool is_whole = world_size_ && *world_size_ > 0 &&
                  static_cast<std::uint64_t>(*world_size_) == expected_count_;
  return is_whole && missing_count_ == 0 ? std::optional(last_connected_at_) : std::nullopt;
}

void ExpectedClients::forget(ClientId announcer) {
  auto found = announced_.find(announcer);
  if (found == announced_.end()) return;
  std::size_t freed = 0;
  for (auto& [name, expected] : found->second) {
    leave_group(expected);
    freed += cost_of(name);
  }
  budget_.remove(freed);
  expected_count_ -= found->second.size();
  announced_.erase(found);
}

void ExpectedClients::clear() {
  budget_.remove_all();
  world_size_.reset();
  missing_.clear();
  announced_.clear();
  expected_count_ = missing_count_ = 0;
  last_connected_at_ = {};
}

std::vector<ExpectedClients::Missing> ExpectedClients::missing(std::size_t max_count) const {
  std::vector<Missing> found;
  for (const auto& [process, group] : missing_) {
    for (const std::string* name : group->members) {
      if (found.size() == max_count) return found;
      found.push_back({.name = *name, .host = process.second, .pid = process.first});
    }
  }
  return found;
}

void ExpectedClients::join_group(Names::value_type& entry, Process process) {
  auto [place, is_new] = missing_.try_emplace(std::move(process));
  if (is_new) {
    place->second = std::make_shared<Group>();
    place->second->place = place;
  }
  Group& group = *place->second;
  entry.second = {.group = place->second,
                  .place = group.members.insert(group.members.end(), &entry.first)};
  ++missing_count_;
}

// Leaves `expected` without a group.
void ExpectedClients::leave_group(Expected& expected) {
  std::shared_ptr<Group> group = std::move(expected.group);
  group->members.erase(expected.place);
  if (group->has_connected) return;
  --missing_count_;
  if (group->members.empty()) missing_.erase(group->place);
}

}  // namespace ddprun::store
