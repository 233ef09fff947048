// SPDX-License-Identifier: BSD-3-Clause
//
// Which connections have come from which address, so that one address cannot take all the room.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "store/decide/outgoing.h"

namespace ddprun::store {

// Threads: not safe for concurrent use.
class Crowd {
 public:
  // Clients count upwards.  No client is added twice.
  void add(const std::string& host, ClientId client);
  // One that has been added.
  void remove(const std::string& host, ClientId client);

  // The last that has come from the address that has most, if that has more than `share`.
  std::optional<ClientId> last_beyond(std::size_t share) const;

 private:
  void count(const std::string& host, std::size_t before, std::size_t now);

  std::map<std::string, std::set<ClientId>> clients_;
  std::set<std::pair<std::size_t, std::string>> counts_;
};

}  // namespace ddprun::store
