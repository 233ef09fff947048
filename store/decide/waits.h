// SPDX-License-Identifier: BSD-3-Clause
//
// The clients that wait for names: WAIT, BARRIER and QUEUE_TAKE that have not been answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/base/time.h"
#include "store/decide/budget.h"
#include "store/decide/entries.h"
#include "store/decide/outgoing.h"

namespace ddprun::store {

// What a wait is for, and so what becomes of it when a queue of that name has an item.
enum class WaitKind : std::uint8_t {
  Names,  // a WAIT for several names, or a BARRIER: it uses no item up
  One,    // a WAIT for one name, as a blocking pop sends it: an item is set aside
  Take,   // a QUEUE_TAKE: it gets the item; a key of the name does not end it
};

// One awaited name of one wait.
struct WaitLink {
  static constexpr std::uint32_t kOut = 0xffffffff;
  Node* node = nullptr;
  std::uint32_t place = kOut;  // among the name's waiters; kOut if it has left them
};

// A wait that has not been answered.
struct Wait {
  ClientId client;
  std::list<Wait>::iterator self;  // its place in its client's list
  MonoTime since;
  std::size_t names_left;
  std::unique_ptr<WaitLink[]> links;
  std::size_t link_count;
  WaitKind kind;
  std::multimap<MonoTime, Wait*>::iterator deadline;  // of a take
  bool is_over = false;  // has ended; clean_up() takes it out of the names' waiters
};

// A name whose waiters are being told, step by step, that a key has been stored.
struct Waking {
  Node* node;
  std::list<Waking>::iterator self;
};

// A wait as the status page shows it, with the first few of the names that it still waits for.
struct PendingWait {
  ClientId client;
  MonoTime since;
  std::vector<std::string> missing;
  std::size_t missing_count;
};

// Threads: not safe for concurrent use.  Lifetime: what the constructor is given must outlive it.
class Waits {
 public:
  Waits(const KeyspaceLimits& limits, Budget& budget, Entries& entries)
      : limits_(limits), budget_(budget), entries_(entries) {}

  // Makes the client wait until each of the nodes has been created once.  Answers why the client
  // must be disconnected, if it must be; nothing has changed then.
  std::optional<std::string> start(const Context& context, const std::vector<Node*>& missing,
                                   WaitKind kind);
  // Why the client must be disconnected if it begins to wait once more, if it must be.
  std::optional<std::string> too_many(ClientId client) const;
  // The latest wait of this client, which there must be, ends at `deadline` with the number 0.
  void set_deadline(ClientId client, MonoTime deadline);

  // Makes the client wait for nothing yet; `most_links` names may be added.
  Wait& add(const Context& context, WaitKind kind, std::size_t most_links);
  void add_link(Wait& wait, Node& node);
  std::size_t awaited_names(ClientId client) const;

  // One of the names of `wait` exists now, and its link has left the name's waiters.  The last one
  // ends the wait.
  void name_exists(const Context& context, Wait& wait);
  // Ends a wait without an answer.  A wait for many names leaves work for clean_up().
  void end(Wait& wait);
  void cancel_all(ClientId client);

  // From now on KeyspaceLimits::wakes_at_once waiters may be told before others are left over.
  void begin_step() { wakes_left_ = limits_.wakes_at_once; }

  // A key has been stored: tells all its waiters except takes; of very many those of the client
  // that asks, and clean_up() tells the others, whatever becomes of the key.
  void wake_all(const Context& context, Node& node);
  // Takes the first waiter, which there must be, out of the name's waiters.
  Wait& take_first(Node& node);

  bool has_pending_work() const { return needs_cleanup() || !deadlines_.empty(); }
  bool needs_cleanup() const { return !ended_.empty() || !waking_.empty(); }
  // Tells waiters that were left over, and takes links of ended waits out of their names' waiters:
  // about `effort` of both.
  void clean_up(std::size_t effort, MonoTime now, Replies& replies);

  std::optional<MonoTime> deadline() const;
  // Ends takes whose time is up, `most` of them at most.  Returns how many.
  std::size_t expire(MonoTime now, Replies& replies, std::size_t most);

  bool has(ClientId client) const { return clients_.contains(client); }
  std::size_t count() const { return count_; }
  std::size_t count(ClientId client) const;
  std::vector<PendingWait> pending(std::size_t max_count, std::size_t max_names) const;

  void clear();
  // Frees what is here as far as the effort goes, which it diminishes, without counting it in the
  // budget.  Answers whether that was all; if not, nothing else may be asked for any more.
  bool free_some(std::size_t& effort);

 private:
  struct Client {
    std::list<Wait> waits;
    std::size_t awaited_names = 0;
  };

  void enqueue(Wait& wait, std::uint32_t link);
  void make_room(std::vector<Waiters::Item>& items);
  std::size_t leave(WaitLink& link);
  static std::size_t compact_if_sparse(Waiters& waiters);
  void unlink(Wait& wait, std::size_t& effort);
  void wake_now(const Context& context, Node& node);
  void wake_later(const Context& context, Node& node);
  void wake_own(const Context& context, Node& node);
  void wake_some(std::size_t effort, const Context& context);
  void tell(const Context& context, Waiters& waiters, std::size_t place);
  void drop_waiters(Node& node);
  void stop_waking(Waiters& waiters);

  const KeyspaceLimits& limits_;
  Budget& budget_;
  Entries& entries_;
  std::unordered_map<ClientId, Client> clients_;  // those that wait
  std::multimap<MonoTime, Wait*> deadlines_;      // of the takes
  std::list<Wait> ended_;                         // whose links are still to be taken out
  std::list<Waking> waking_;                      // in turns
  std::size_t wakes_left_ = 0;                    // in this step
  std::size_t share_ = 0;                         // of make_room()
  std::size_t count_ = 0;
};

}  // namespace ddprun::store
