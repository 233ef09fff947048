// SPDX-License-Identifier: BSD-3-Clause
//
// What the store knows and decides: the values, the queues, and who waits for what.  One request
// of one client goes in; replies come out, some of them for other clients that were waiting.  No
// socket, no clock, no log: store/server.h is the shell that carries the replies.
//
// The meaning of each operation is torch's (store/PROTOCOL.md), without the faults listed there.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/base/time.h"
#include "store/value.h"
#include "store/wire.h"

namespace ddprun::store {

using ClientId = std::uint64_t;

// A piece of a reply and who gets it.  Pieces for one client are sent in the order given.
struct Outgoing {
  ClientId to;
  Reply reply;
};
using Replies = std::vector<Outgoing>;

// Limits of the whole store.  torch has none of them; whoever passes one is disconnected.
struct KeyspaceLimits {
  std::size_t max_keys = std::numeric_limits<std::size_t>::max();
  std::size_t max_queue_items = std::numeric_limits<std::size_t>::max();  // of one queue
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();        // keys, values, items
  // Of one connection at one time; one WAIT of torch's largest size must fit.
  std::size_t max_awaited_keys = 2 * 131072;
};

// The map, the queues and the waiters.
//
// Threads: not safe for concurrent use.
class Keyspace {
 public:
  // How long an item stays set aside for the client that was told of it; see WAIT in
  // store/PROTOCOL.md.  torch's client takes it in its very next request.
  static constexpr Duration kHold = std::chrono::seconds(5);

  explicit Keyspace(KeyspaceLimits limits = {}) : limits_(limits) {}
  ~Keyspace();

  Keyspace(const Keyspace&) = delete;
  Keyspace& operator=(const Keyspace&) = delete;

  // Carries out `request` and appends what must be sent.  Answers why the client must be
  // disconnected, if it must be; the request then had no effect.
  std::optional<std::string> execute(ClientId client, const Request& request, MonoTime now,
                                     Replies& replies);

  // Forgets a client: what it waits for, and what was set aside for it, which may wake others.
  void disconnect(ClientId client, MonoTime now, Replies& replies);

  // When expire() has something to do next, if nothing happens before.
  std::optional<MonoTime> deadline() const;

  // Gives up what was set aside longer than kHold ago, which may wake others.
  void expire(MonoTime now, Replies& replies);

  std::size_t key_count() const { return key_count_; }
  std::size_t bytes() const { return bytes_; }
  // The waits that have not been answered.
  std::size_t wait_count() const { return wait_count_; }

 private:
  struct Wait;
  struct Entry;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>{}(key);
    }
  };
  using Entries = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;
  using Node = Entries::value_type;

  // One awaited key of one wait; a member of the key's list of waiters.
  struct Link : boost::intrusive::list_base_hook<> {
    Wait* wait = nullptr;
    Node* node = nullptr;
  };
  using Links = boost::intrusive::list<Link, boost::intrusive::constant_time_size<false>>;

  // A WAIT or BARRIER that has not been answered.
  struct Wait {
    ClientId client;
    std::list<Wait>::iterator self;  // its place in its client's list
    std::size_t keys_left;
    std::unique_ptr<Link[]> links;
    std::size_t link_count;
    bool may_reserve;  // a WAIT for one key, as a blocking pop sends it
  };

  struct Queue {
    std::deque<Value> items;
    std::size_t reserved_count = 0;  // items set aside; never more than there are
  };

  // What a name stands for: a key, a queue, or both; or neither, while somebody waits for it.
  struct Entry {
    Value value;
    std::unique_ptr<Queue> queue;
    Links waiters;
  };

  // An item set aside for the client that was told that the queue has one.
  struct Reservation {
    ClientId client;
    Node* node;
    MonoTime since;
  };
  using Reservations = std::list<Reservation>;  // oldest first

  struct Client {
    std::list<Wait> waits;
    std::size_t awaited_keys = 0;
    std::vector<Reservations::iterator> reservations;
  };

  // One call from outside: who asks, when, and where the replies go.
  struct Turn {
    ClientId client;
    MonoTime now;
    Replies* replies;

    void reply(Reply piece) const { replies->push_back({client, std::move(piece)}); }
  };
  struct Execution;  // what each operation does

  // Names and what they hold (keyspace.cc).
  static bool exists(const Node* node);
  Node* find(std::string_view name);
  Node& find_or_create(std::string_view name);
  void drop_if_unused(Node& node);
  void assign(Node& node, Value value);
  void append(Node& node, std::string_view piece);
  std::size_t room_bytes() const;
  bool has_room_for(std::string_view key, std::size_t value_bytes);

  // Waits, queues and what is set aside (keyspace_waits.cc).
  std::optional<std::string> start_wait(const Turn& turn, const std::vector<Node*>& missing,
                                        bool may_reserve);
  void tick(const Turn& turn, Wait& wait);
  void end_wait(Wait& wait);
  void cancel_waits(ClientId client);
  void wake_all(const Turn& turn, Node& node);
  void offer(const Turn& turn, Node& node);
  void reserve(const Turn& turn, ClientId client, Node& node);
  bool take_reservation(ClientId client, const Node& node);
  void drop(Reservations::iterator reservation);
  void release_all(const Turn& turn, ClientId client, const Node* except);
  void forget_if_idle(ClientId client);

  KeyspaceLimits limits_;
  Entries entries_;
  std::unordered_map<ClientId, Client> clients_;  // those that wait or have something set aside
  Reservations reservations_;
  std::size_t key_count_ = 0;
  std::size_t bytes_ = 0;
  std::size_t wait_count_ = 0;
};

}  // namespace ddprun::store
