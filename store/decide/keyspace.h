// SPDX-License-Identifier: BSD-3-Clause
//
// What the store knows and decides: the values, the queues, and who waits for what.  One request
// of one client goes in; replies come out, some of them for other clients that were waiting.  No
// socket, no clock, no log: store/server.h is the shell that carries the replies.
//
// The meaning of each operation is torch's (store/PROTOCOL.md), without the faults listed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/base/time.h"
#include "store/decide/hash.h"
#include "store/decide/name_table.h"
#include "store/decide/value.h"
#include "store/decide/wire.h"

namespace ddprun::store {

using ClientId = std::uint64_t;

// Clients from this number on are the host's own: the limits on keys, items and bytes are for the
// others.
inline constexpr ClientId kFirstOwnClient = ClientId{1} << 63;

// A piece of a reply and who gets it.  Pieces for one client are sent in the order given.
struct Outgoing {
  ClientId to;
  Reply reply;
};
using Replies = std::vector<Outgoing>;

// What keys, values, queues, last wills and waits take up, and what a MULTI_SET under way will at
// most.
struct Usage {
  std::size_t keys = 0;
  std::size_t bytes = 0;
  std::size_t promised_keys = 0;
  std::size_t promised_bytes = 0;
};

// Limits of the whole store.  torch has none of them; whoever passes one is disconnected.
struct KeyspaceLimits {
  std::size_t max_keys = std::numeric_limits<std::size_t>::max();
  std::size_t max_queue_items = std::numeric_limits<std::size_t>::max();  // of one queue
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();        // as Usage counts them
  // Of one connection at one time; one WAIT of torch's largest size must fit.
  std::size_t max_awaited_keys = 2 * 131072;
  // A request about more names than this is large: see Keyspace::begin().
  std::size_t names_at_once = 4096;
};

// The map, the queues and the waiters.
//
// Threads: not safe for concurrent use.
class Keyspace {
 public:
  // A wait that has not been answered, and the first few of the names that it still waits for.
  struct Pending {
    ClientId client;
    MonoTime since;
    std::vector<std::string> missing;
    std::size_t missing_count;
  };

  // How long an item stays set aside for the client that was told of it; see WAIT in
  // store/PROTOCOL.md.  torch's client takes it in its very next request.
  static constexpr Duration kHold = std::chrono::seconds(5);

  // The limits on keys and bytes hold for all keyspaces with the same `shared` together, which must
  // outlive them.  The seed is random where clients are not trusted.
  explicit Keyspace(KeyspaceLimits limits = {}, Usage* shared = nullptr, HashSeed seed = {});
  ~Keyspace();

  Keyspace(const Keyspace&) = delete;
  Keyspace& operator=(const Keyspace&) = delete;

  // Carries out `request` and appends what must be sent.  Answers why the client must be
  // disconnected, if it must be; the request then had no effect.
  std::optional<std::string> execute(ClientId client, const Request& request, MonoTime now,
                                     Replies& replies);

  // Whether others should be served while `request` is carried out, because it is about many names
  // or bytes: then begin() and proceed() take the place of execute().
  bool is_large(const Request& request) const;

  // Begins a large request, one at a time; answers as execute() does.  Its client must not ask
  // anything else nor be disconnected until proceed() is done with it, and what `request` refers to
  // must stay.
  //
  // CHECK, MULTI_GET and LIST_KEYS answer what was true in this moment, whatever others do
  // meanwhile.  WAIT and MULTI_SET take their names one after the other, each in one piece.
  std::optional<std::string> begin(ClientId client, const Request& request, MonoTime now,
                                   Replies& replies);

  struct Progress {
    bool is_done;
    std::optional<std::string> fault;  // why the client must be disconnected; the request is done
  };
  // Goes on with the request begun, for as much as `effort` names cost.
  Progress proceed(std::size_t effort, MonoTime now, Replies& replies);

  // A wait for many names that has ended leaves some work behind: whether there is any, and doing
  // as much of it as `effort` names cost.  Nobody can tell the difference, but by bytes().
  bool needs_cleanup() const { return !ended_.empty(); }
  void clean_up(std::size_t effort);

  // Forgets a client: what it waits for, and what was set aside for it, which may wake others.  Its
  // last will, if it left one, goes to the queue that it was meant for.
  void disconnect(ClientId client, MonoTime now, Replies& replies);

  // Forgets everything and everybody, last wills included; nobody is told.
  void clear();

  // When expire() has something to do next, if nothing happens before.
  std::optional<MonoTime> deadline() const;

  // Gives up what was set aside longer than kHold ago, which may wake others, and ends the takes
  // whose time is up.
  void expire(MonoTime now, Replies& replies);

  // The first `max_count` waits, and `max_names` names of each.
  std::vector<Pending> pending(std::size_t max_count, std::size_t max_names) const;

  // What a key holds; nothing where there is none.
  Value peek(std::string_view key) const;

  // Whether nothing is kept for this client: no wait, no last will, nothing set aside.
  bool is_unknown(ClientId client) const { return !clients_.contains(client); }

  std::size_t key_count() const { return usage_.keys; }
  // 0 only where nothing is left: no key, no queue, no wait, no last will.
  std::size_t bytes() const { return usage_.bytes; }
  // The waits that have not been answered.
  std::size_t wait_count() const { return wait_count_; }
  std::size_t wait_count(ClientId client) const;

 private:
  // What each costs besides its bytes, near enough; a queue without its items, and a wait without
  // its names, but with what is kept for its client.
  static constexpr std::size_t kNameOverheadBytes = 128;
  static constexpr std::size_t kValueOverheadBytes = 40;
  static constexpr std::size_t kQueueOverheadBytes = 700;
  static constexpr std::size_t kWaitOverheadBytes = 256;
  static constexpr std::size_t kAwaitedNameBytes = 56;

  struct Wait;
  struct Entry;
  using Entries = NameTable<Entry>;
  using Node = Entries::Node;
  using Hash = Entries::Hash;

  using Deadlines = std::multimap<MonoTime, Wait*>;

  // One awaited name of one wait.
  struct Link {
    static constexpr std::uint32_t kOut = 0xffffffff;
    Node* node = nullptr;
    std::uint32_t place = kOut;  // among the name's waiters; kOut when it is not there any more
  };

  // Who waits for a name, first come first served; there while anybody does.  A plain run of
  // memory, because thousands of ranks may each wait for the names of all of them.
  struct Waiters {
    struct Item {
      Wait* wait;  // none where one has left
      std::uint32_t link;
    };
    std::vector<Item> items;
    std::size_t first = 0;  // those before it have left
    std::size_t count = 0;  // those that have not
  };

  // What a wait is for, and so what becomes of it when a queue of that name has an item.
  enum class WaitKind : std::uint8_t {
    Names,  // a WAIT for several names, or a BARRIER: no item is used up
    One,    // a WAIT for one name, as a blocking pop sends it: an item is set aside
    Take,   // a QUEUE_TAKE: it gets the item, and a key of the name does not end it
  };

  // A WAIT, BARRIER or QUEUE_TAKE that has not been answered.
  struct Wait {
    ClientId client;
    std::list<Wait>::iterator self;  // its place in its client's list
    MonoTime since;
    std::size_t keys_left;
    std::unique_ptr<Link[]> links;
    std::size_t link_count;
    WaitKind kind;
    Deadlines::iterator deadline;  // of a take
    bool is_over = false;          // has ended; clean_up() will take it out of the lists
  };

  struct Queue {
    std::deque<Value> items;
    std::size_t reserved_count = 0;  // items set aside; never more than there are
  };

  // What a name stands for: a key, a queue, or both; or neither, while somebody waits for it.
  struct Entry {
    Value value;
    std::unique_ptr<Queue> queue;
    std::unique_ptr<Waiters> waiters;
  };

  // An item set aside for the client that was told that the queue has one.
  struct Reservation {
    ClientId client;
    Node* node;
    MonoTime since;
  };
  using Reservations = std::list<Reservation>;  // oldest first

  // What a client wants pushed to a queue should its connection be lost.
  struct LastWill {
    std::string queue;
    Value item;
  };

  struct Client {
    std::optional<LastWill> will;
    std::list<Wait> waits;
    std::size_t awaited_keys = 0;
    std::vector<Reservations::iterator> reservations;
  };

  // One call from outside: who asks, when, and where the replies go.
  struct Context {
    ClientId client;
    MonoTime now;
    Replies* replies;

    void reply(Reply piece) const { replies->push_back({client, std::move(piece)}); }
  };
  // A reply of many values: small ones are written one behind the other at once.
  class Gathering {
   public:
    Gathering(const Context& turn, std::size_t most_values)
        : turn_(turn), values_left_(most_values) {}
    void add(const Value& value);
    void finish();

   private:
    const Context& turn_;
    std::size_t values_left_;
    std::string run_;
  };
  struct Execution;  // what each operation does
  struct Large;      // a large request under way
  struct Steps;      // what each does in one go

  // Names and what they hold (keyspace.cc).
  static bool exists(const Node* node);
  Node* find(std::string_view name);
  Node& find_or_create(std::string_view name) { return find_or_create(name, entries_.hash(name)); }
  Node& find_or_create(std::string_view name, Hash hash);
  void drop_if_unused(Node& node);
  void store(Node& node, std::string_view bytes);
  void clear(Node& node);
  void append(Node& node, std::string_view piece);
  void account(std::size_t bytes, std::size_t keys = 0);
  void discount(std::size_t bytes, std::size_t keys = 0);
  const Usage& total() const { return shared_ != nullptr ? *shared_ : usage_; }
  std::size_t room_bytes(ClientId client) const;
  std::size_t room_keys(ClientId client) const;
  bool has_room_for(ClientId client, std::string_view key, std::size_t value_bytes);
  std::optional<std::string> room_for(ClientId client, std::span<const KeyValue> pairs,
                                      Usage& needed) const;
  static std::size_t bytes_of(const KeyValue& pair) {
    return pair.key.size() + pair.value.size() + kNameOverheadBytes + kValueOverheadBytes;
  }

  static std::size_t will_bytes(std::string_view queue, std::size_t item_bytes) {
    return queue.size() + item_bytes + kNameOverheadBytes + kValueOverheadBytes +
           kQueueOverheadBytes;
  }

  // Waits, queues and what is set aside (keyspace_waits.cc).
  std::optional<std::string> start_wait(const Context& turn, const std::vector<Node*>& missing,
                                        WaitKind kind);
  Wait& add_wait(const Context& turn, WaitKind kind, std::size_t most_links);
  void add_link(Wait& wait, Node& node);
  static void line_up(Wait& wait, std::uint32_t link);
  static void leave_line(Link& link);
  static void close_up_if_sparse(Waiters& waiters);
  static Wait& take_first(Node& node);
  void tick(const Context& turn, Wait& wait);
  void end_wait(Wait& wait);
  void unlink(Wait& wait, std::size_t count);
  void cancel_waits(ClientId client);
  void wake_all(const Context& turn, Node& node);
  void offer(const Context& turn, Node& node);
  void push(const Context& turn, std::string_view queue, Value item);
  void pop(const Context& turn, Node& node);
  void set_last_will(ClientId id, std::optional<LastWill> will);
  void reserve(const Context& turn, ClientId client, Node& node);
  bool take_reservation(ClientId client, const Node& node);
  void drop(Reservations::iterator reservation);
  void release_all(const Context& turn, ClientId client, const Node* except);
  void forget_if_idle(ClientId client);

  // What names held when the large request under way began (keyspace_large.cc).
  void remember(const Node& node) {
    if (large_) remember_for_large(node);
  }
  void remember_for_large(const Node& node);
  void promise(std::ptrdiff_t keys, std::ptrdiff_t bytes);
  void hold_back(Replies& replies, std::size_t first);
  void end_large();

  KeyspaceLimits limits_;
  Entries entries_;
  std::unordered_map<ClientId, Client>
      clients_;  // those that wait, left a last will, or have something set aside
  Reservations reservations_;
  Deadlines deadlines_;    // of the takes
  std::list<Wait> ended_;  // whose names are still to be let go
  std::unique_ptr<Large> large_;
  Usage usage_;
  Usage* shared_;
  std::size_t wait_count_ = 0;
};

}  // namespace ddprun::store
