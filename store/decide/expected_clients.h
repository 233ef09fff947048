// SPDX-License-Identifier: BSD-3-Clause
//
// The clients that were announced, and those of them that have not connected.  A c10d client does
// not say which rank it is, but it sends its process id in its first PING.  A launcher knows the
// process ids of its workers and announces them (EXPECT in store/PROTOCOL.md).  Both are matched by
// process id and by the address that they connect from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "store/base/time.h"
#include "store/decide/budget.h"
#include "store/decide/keyspace.h"

namespace ddprun::store {

// No operation takes longer because many announcements have the same process id: each costs the
// logarithm of the number of announcements, and forget() and clear() that for each that they drop.
//
// Threads: not safe for concurrent use.
class ExpectedClients {
 public:
  // Limits: the announcements kept, those of one announcer, and the bytes of a name.
  static constexpr std::size_t kMostExpected = 131072;
  static constexpr std::size_t kMostOfOne = 4096;
  static constexpr std::size_t kMostNameBytes = 64;

  struct Missing {
    std::string name;  // as announced: "rank 3"
    std::string host;
    std::uint32_t pid;
  };

  // Announcements take room of `budget`.
  explicit ExpectedClients(Budget budget = Budget({}, nullptr)) : budget_(budget) {}

  // The number of workers of the run, announced or not.
  void expect_world(std::int64_t size) { world_size_ = size; }
  std::optional<std::int64_t> world_size() const { return world_size_; }

  // Announces a client with this process id from `host`.  An announcement with the same name by the
  // same announcer is replaced.  Beyond a limit, or where the budget has no room, nothing happens.
  void expect(ClientId announcer, const std::string& host, std::string_view name,
              std::uint32_t pid);

  // Whether an announced client with this process id is missing, whatever its host.
  bool is_missing(std::uint32_t pid) const;

  // A client has connected, at that time.  It counts as connected even after it has left.
  void connected(const std::string& host, std::uint32_t pid, MonoTime at);

  // When the last of them connected, if the whole world is announced and has connected.
  std::optional<MonoTime> all_connected_at() const;

  // Drops the announcements of this client.
  void forget(ClientId announcer);

  // Drops everything.
  void clear();

  std::size_t expected_count() const { return expected_count_; }
  std::size_t missing_count() const { return missing_count_; }
  // What the announcements take of the budget.
  std::size_t bytes() const { return budget_.usage().bytes; }
  // At most `max_count` of the missing clients, in no order.
  std::vector<Missing> missing(std::size_t max_count) const;

 private:
  using Process = std::pair<std::uint32_t, std::string>;  // the process id and the host

  // The announcements of one process that were made before it connected.
  struct Group;
  using Groups = std::map<Process, std::shared_ptr<Group>>;
  using Members = std::list<const std::string*>;  // the names that they are kept under
  struct Group {
    Members members;
    Groups::iterator place;  // in the missing, until the process has connected
    bool has_connected = false;
  };

  struct Expected {
    std::shared_ptr<Group> group;
    Members::iterator place;  // in the group
  };
  using Names = std::map<std::string, Expected>;

  void join_group(Names::value_type& entry, Process process);
  void leave_group(Expected& expected);

  Budget budget_;
  std::optional<std::int64_t> world_size_;
  std::unordered_map<ClientId, Names> announced_;
  Groups missing_;  // each with a member
  std::size_t expected_count_ = 0;
  std::size_t missing_count_ = 0;
  MonoTime last_connected_at_{};
};

}  // namespace ddprun::store
