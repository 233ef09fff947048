// SPDX-License-Identifier: BSD-3-Clause
//
// The clients that were announced, and those of them that have not connected.  A c10d client does
// not say which rank it is, but it sends its process id in its first PING.  A launcher knows the
// process ids of its workers and announces them (EXPECT in store/PROTOCOL.md).  Both are matched by
// process id and by the address that they connect from.
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
class ExpectedClients {
 public:
  // Limits, because any client can send EXPECT: the announcements kept, and the bytes of a name.
  static constexpr std::size_t kMostExpected = 131072;
  static constexpr std::size_t kMostNameBytes = 64;

  struct Missing {
    std::string name;  // as announced: "rank 3"
    std::string host;
    std::uint32_t pid;
  };

  // The number of workers of the run, announced or not.
  void expect_world(std::int64_t size) { world_size_ = size; }
  std::optional<std::int64_t> world_size() const { return world_size_; }

  // Announces a client with this process id from `host`.  An announcement with the same name by the
  // same announcer is replaced.
  void expect(ClientId announcer, const std::string& host, std::string name, std::uint32_t pid);

  // Whether an announced client with this process id is missing, whatever its host.
  bool is_missing(std::uint32_t pid) const { return by_pid_.contains(pid); }

  // A client has connected.  It counts as connected even after it has left.
  void connected(const std::string& host, std::uint32_t pid);

  // Drops the announcements of this client.
  void forget(ClientId announcer);

  // Drops everything.
  void clear();

  std::size_t expected_count() const { return expected_count_; }
  std::size_t missing_count() const { return by_pid_.size(); }
  // At most `max_count` of the missing clients, in no order.
  std::vector<Missing> missing(std::size_t max_count) const;

 private:
  struct Expected {
    std::string host;
    std::uint32_t pid;
    bool has_connected = false;
  };
  using Names = std::map<std::string, Expected>;

  void drop_from_index(const Expected& expected);

  std::optional<std::int64_t> world_size_;
  std::unordered_map<ClientId, Names> announced_;
  std::unordered_multimap<std::uint32_t, Names::value_type*> by_pid_;  // the missing clients
  std::size_t expected_count_ = 0;
};

}  // namespace ddprun::store
