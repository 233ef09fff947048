// SPDX-License-Identifier: BSD-3-Clause
//
// Who is expected, and who of them has not come.  A c10d client does not say which rank it is; what
// it does say is its process id, in its first PING.  A launcher knows the ids of the workers that
// it has started, so it announces them (EXPECT in store/PROTOCOL.md), and the two are matched by
// the address that both connect from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/decide/keyspace.h"

namespace ddprun::store {

// Threads: not safe for concurrent use.
class Roll {
 public:
  // More than so many are not kept, nor more than so much of a name: strangers can announce too.
  static constexpr std::size_t kMostExpected = 131072;
  static constexpr std::size_t kMostNameBytes = 64;

  struct Absentee {
    std::string who;  // as announced: "rank 3"
    std::string host;
    std::uint32_t pid;
  };

  // The world will have so many workers, announced or not.
  void expect_world(std::int64_t size) { world_size_ = size; }
  std::optional<std::int64_t> world_size() const { return world_size_; }

  // `announcer` expects a client with this process id from `host`.  The same name again replaces
  // the one before.
  void expect(ClientId announcer, const std::string& host, std::string who, std::uint32_t pid);

  // Whether anybody with this process id is expected still.
  bool misses(std::uint32_t pid) const { return by_pid_.contains(pid); }

  // A client has come.  That it left since does not matter.
  void came(const std::string& host, std::uint32_t pid);

  // What this client has announced is void.
  void forget(ClientId announcer);

  // A new round begins.
  void clear();

  std::size_t expected_count() const { return expected_count_; }
  std::size_t absent_count() const { return by_pid_.size(); }
  // The first `max_count` of those who have not come, in no order.
  std::vector<Absentee> absent(std::size_t max_count) const;

 private:
  struct Expected {
    std::string host;
    std::uint32_t pid;
    bool has_come = false;
  };
  using Names = std::map<std::string, Expected>;

  void drop_from_index(const Expected& expected);

  std::optional<std::int64_t> world_size_;
  std::unordered_map<ClientId, Names> announced_;
  std::unordered_multimap<std::uint32_t, Names::value_type*> by_pid_;  // who has not come
  std::size_t expected_count_ = 0;
};

}  // namespace ddprun::store
