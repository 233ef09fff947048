// SPDX-License-Identifier: BSD-3-Clause
//
// Which connections have come from which address, so that a few addresses cannot take all the room.
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
  // An address, or a network, from which more than this part of all connections comes has too many.
  static constexpr std::size_t kShare = 8;
  // An address may keep so many, and so large a part, whatever comes from elsewhere.
  static constexpr std::size_t kKept = 16;
  static constexpr std::size_t kKeptShare = 512;

  // `host` is numeric.  Clients count upwards.  No client is added twice.
  void add(const std::string& host, ClientId client);
  // One that has been added.
  void remove(const std::string& host, ClientId client);

  // Who makes room for one more from `host`, where `most` connections are all that there may be:
  //  1. the last from the address that has most, if it has too many;
  //  2. else the same, if it has more than it may keep, and than `host` would have then;
  //  3. else, for a host that has no more than it may keep, the last of others from the network
  //     that has most, if it has too many: of IPv6 64 bits are a network, and this machine's
  //     loopback addresses are one.
  // Nothing: who comes is refused.
  std::optional<ClientId> gives_way(const std::string& host, std::size_t most) const;

 private:
  // The clients of each place.
  class Count {
   public:
    using Clients = std::set<ClientId>;

    void add(const std::string& place, ClientId client);
    void remove(const std::string& place, ClientId client);

    const Clients& of(const std::string& place) const;
    // Of the place that has most.
    const Clients& largest() const;

   private:
    void resize(const std::string& place, std::size_t before, std::size_t now);

    std::map<std::string, Clients> clients_;
    std::set<std::pair<std::size_t, std::string>> sizes_;
  };

  Count addresses_;
  Count networks_;
};

}  // namespace ddprun::store
