// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "store/decide/budget.h"
#include "store/decide/effort.h"
#include "store/decide/outgoing.h"
#include "store/decide/value.h"

namespace ddprun::store {

// The item that is pushed to a queue when a client's connection is lost.
struct LastWill {
  std::string queue;
  Value item;
};

// The last wills of the clients, at most one each.
//
// Threads: not safe for concurrent use.  Lifetime: `budget` must outlive it.
class LastWills {
 public:
  explicit LastWills(Budget& budget) : budget_(budget) {}

  // Replaces the client's last will, if it has one.
  void set(ClientId client, LastWill will) {
    clear(client);
    budget_.add(cost::of_queue(will.queue, will.item.size()));
    wills_.emplace(client, std::move(will));
  }
  void clear(ClientId client) { take(client); }
  std::optional<LastWill> take(ClientId client) {
    auto found = wills_.find(client);
    if (found == wills_.end()) return std::nullopt;
    LastWill will = std::move(found->second);
    wills_.erase(found);
    budget_.remove(cost::of_queue(will.queue, will.item.size()));
    return will;
  }
  bool has(ClientId client) const { return wills_.contains(client); }
  // Null where the client has none.
  const LastWill* find(ClientId client) const {
    auto found = wills_.find(client);
    return found != wills_.end() ? &found->second : nullptr;
  }
  void clear_all() { wills_ = decltype(wills_)(); }
  // As Waits::free_some().
  bool free_some(std::size_t& effort) {
    for (; effort > 0 && !wills_.empty(); wills_.erase(wills_.begin())) {
      std::size_t bytes = wills_.begin()->second.item.size();
      effort -= std::min(effort, 1 + bytes / effort::kBytes);
    }
    return effort > 0;
  }

 private:
  Budget& budget_;
  std::unordered_map<ClientId, LastWill> wills_;
};

}  // namespace ddprun::store
