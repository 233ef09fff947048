// SPDX-License-Identifier: BSD-3-Clause
//
// The items of queues: pushed, popped, given to the clients that wait for them, and set aside for a
// client that was woken and has not popped yet (WAIT in store/PROTOCOL.md).
#pragma once

#include <deque>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/base/time.h"
#include "store/decide/entries.h"
#include "store/decide/outgoing.h"
#include "store/decide/waits.h"

namespace ddprun::store {

// Threads: not safe for concurrent use.  Lifetime: `entries` and `waits` must outlive it.
class Queues {
 public:
  // How long an item stays set aside.  torch's client takes it in its very next request.
  static constexpr Duration kHold = std::chrono::seconds(5);

  Queues(const KeyspaceLimits& limits, Entries& entries, Waits& waits)
      : limits_(limits), entries_(entries), waits_(waits) {}

  void push(const Context& context, std::string_view queue, Value item);
  // Answers context.client with the oldest item, which there must be.
  void pop(const Context& context, Node& node);

  // Sets an item aside for `client`; the queue must have a free one.
  void reserve(const Context& context, ClientId client, Node& node);
  // Frees an item that is set aside for `client` in this queue, if there is one.
  void take_reservation(ClientId client, const Node& node);
  // Frees what is set aside for `client`, except in the queue `except`, and wakes others by it.
  void release(const Context& context, ClientId client, const Node* except);
  bool has_reservations() const { return !reservations_.empty(); }
  bool has_reservations(ClientId client) const { return clients_.contains(client); }

  // Where very many wait for a queue that gets an item, some are offered it later: whether there
  // are any, and offering it to some.
  bool has_offers() const { return !unoffered_.empty(); }
  void offer_some(MonoTime now, Replies& replies);

  std::optional<MonoTime> deadline() const;
  // Frees items that were set aside longer than kHold ago, and wakes others by them, `most` of them
  // at most.  Returns how many.
  std::size_t expire(MonoTime now, Replies& replies, std::size_t most);

  void clear();
  // As Waits::free_some().
  bool free_some(std::size_t& effort);

 private:
  struct Reservation {
    ClientId client;
    Node* node;
    MonoTime since;
  };
  using Reservations = std::list<Reservation>;

  void offer(const Context& context, Node& node);
  void drop(Reservations::iterator reservation);

  const KeyspaceLimits& limits_;
  Entries& entries_;
  Waits& waits_;
  std::deque<std::string> unoffered_;  // names of queues
  Reservations reservations_;          // oldest first
  std::unordered_map<ClientId, std::vector<Reservations::iterator>> clients_;
};

}  // namespace ddprun::store
