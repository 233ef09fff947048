// SPDX-License-Identifier: BSD-3-Clause
//
// What a store knows and decides: the values, the queues, and the clients that wait.  One request
// of one client goes in; replies come out, some of them for other clients that were waiting.  It
// opens no socket, reads no clock and writes no log; store/server.h is the shell that sends the
// replies.
//
// The meaning of each operation is torch's (store/PROTOCOL.md), without the faults listed there.
// This file is the face of several objects: entries.h (names and what they stand for), waits.h,
// queues.h, last_wills.h, budget.h (limits), execution.h (the operations) and large_request.h.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "store/decide/budget.h"
#include "store/decide/hash.h"
#include "store/decide/outgoing.h"
#include "store/decide/value.h"
#include "store/decide/waits.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// The map, the queues and the waiters.
//
// Threads: not safe for concurrent use.
class Keyspace {
 public:
  // The limits on keys and bytes hold for all keyspaces with the same `shared` together, which must
  // outlive them.  The seed is random where clients are not trusted.
  explicit Keyspace(KeyspaceLimits limits = {}, Usage* shared = nullptr, HashSeed seed = {});
  ~Keyspace();

  Keyspace(Keyspace&&) noexcept;  // whose source can only be assigned to, or be destroyed
  Keyspace& operator=(Keyspace&&) noexcept;

  // Carries out `request` and appends what must be sent.  Answers why the client must be
  // disconnected, if it must be; the request then had no effect.
  std::optional<std::string> execute(ClientId client, const Request& request, MonoTime now,
                                     Replies& replies);

  // What it costs to carry `request` out, about, in names (effort.h).
  std::size_t effort_of(const Request& request) const;
  // Whether others should be served while `request`, which costs so much, is carried out, because
  // it is about many names or bytes: then begin() and proceed() take the place of execute().
  bool is_large(const Request& request, std::size_t effort) const;
  bool is_large(const Request& request) const { return is_large(request, effort_of(request)); }

  // Begins a large request, one at a time; answers as execute() does.  Its client must not ask
  // anything else nor be disconnected until proceed() is done with it, and what `request` refers to
  // must stay.
  //
  // CHECK, MULTI_GET and LIST_KEYS answer what was true in this moment, whatever others do
  // meanwhile.  WAIT and MULTI_SET take their names one after the other, each in one piece.  APPEND
  // takes effect at its end.
  std::optional<std::string> begin(ClientId client, const Request& request, MonoTime now,
                                   Replies& replies);

  struct Progress {
    bool is_done;
    std::optional<std::string> fault;  // why the client must be disconnected; the request is done
  };
  // Goes on with the request begun, for as much as `effort` names cost.
  Progress proceed(std::size_t effort, MonoTime now, Replies& replies);

  // Whether there is anything to clean up or to expire: as a rule there is not.
  bool has_pending_work() const;

  // A wait for many names that has ended leaves some work behind, which is visible only in bytes();
  // and a key for which very many wait leaves some of them to be told that it exists.  Whether
  // there is any, and doing as much of it as `effort` names cost.
  bool needs_cleanup() const;
  void clean_up(std::size_t effort, MonoTime now, Replies& replies);

  // Forgets a client: what it waits for, and what was set aside for it, which may wake others.  Its
  // last will, if it left one, goes to the queue that it was meant for.
  void disconnect(ClientId client, MonoTime now, Replies& replies);

  // Drops all keys, queues, clients and last wills, without any reply.
  void clear();
  // The same in steps: uncount() makes bytes() 0 at once, and free_some() frees as much as `effort`
  // names cost and answers whether that was all.  Only free_some() and the destructor may follow.
  void uncount();
  bool free_some(std::size_t effort);

  // When expire() has something to do next, if nothing happens before.
  std::optional<MonoTime> deadline() const;

  // Gives up what was set aside longer than Queues::kHold ago, which may wake others, and ends the
  // takes whose time is up: `most` of both at most.  Returns how many.
  std::size_t expire(MonoTime now, Replies& replies,
                     std::size_t most = std::numeric_limits<std::size_t>::max());

  // The first `max_count` waits, and `max_names` names of each.
  std::vector<PendingWait> pending(std::size_t max_count, std::size_t max_names) const;

  // What a key holds; nothing where there is none.
  Value peek(std::string_view key) const;

  // How many items lie in a queue; 0 where there is none.
  std::size_t queue_length(std::string_view queue) const;

  // Takes the client's last will back if it is for this queue: its item, or nothing.
  Value take_last_will(ClientId client, std::string_view queue);

  // Pushes an item as a last will is pushed, whatever the limits; `client` may have gone.
  void push(ClientId client, std::string_view queue, Value item, MonoTime now, Replies& replies);

  // Whether nothing is kept for this client: no wait, no last will, nothing set aside.
  bool is_unknown(ClientId client) const;

  std::size_t key_count() const;
  // 0 only where nothing is left: no key, no queue, no wait, no last will.
  std::size_t bytes() const;
  // The waits that have not been answered.
  std::size_t wait_count() const;
  std::size_t wait_count(ClientId client) const;

 private:
  struct Parts;

  std::unique_ptr<Parts> parts_;
};

}  // namespace ddprun::store
