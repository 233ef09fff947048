// SPDX-License-Identifier: BSD-3-Clause
//
// Clients as the deciding half knows them, and the replies that go to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/base/time.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// One connection of the server.
using ClientId = std::uint64_t;

// Ids from this one on are those of connections from within the server's own process.
inline constexpr ClientId kFirstOwnClient = ClientId{1} << 63;

// Whether the connection comes from within the server's own process.  The limits on keys, items and
// bytes do not hold for it.
constexpr bool is_own(ClientId client) {
  return client >= kFirstOwnClient;
}

// A piece of a reply and the client that gets it.  Pieces for one client are sent in the order
// given.
struct Outgoing {
  ClientId to;
  Reply reply;
};
using Replies = std::vector<Outgoing>;

// Of a request that is carried out in steps.
struct Progress {
  bool is_done;
  std::optional<std::string> fault;  // why the client must be disconnected; the request is done
};

// One call from outside: the client that asks, the time, and where the replies go.
struct Context {
  ClientId client;
  MonoTime now;
  Replies* replies;

  void reply(Reply piece) const { replies->push_back({client, std::move(piece)}); }
};

}  // namespace ddprun::store
