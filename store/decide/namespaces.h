// SPDX-License-Identifier: BSD-3-Clause
//
// The namespaces of one server: the common one, in which every connection begins and every torch
// client stays, and named ones, which a client of ours enters by ENTER_NAMESPACE.  Each is a
// keyspace of its own, so that two parties share a port and never see each other's keys.  No
// socket, no clock, no log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/time.h"
#include "store/decide/keyspace.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// One namespace.
struct Namespace {
  std::string name;  // empty for the common one
  Keyspace keyspace;
  std::size_t members = 0;  // the connections that are in it; not counted for the common one
  std::uint64_t left = 0;   // without any, but with something in it: counts when the last one left
  bool is_reserved = false;
};

// Threads: not safe for concurrent use.
class Namespaces {
 public:
  // The limits on keys and bytes hold for all namespaces together.  For a namespace beyond
  // `max_named` the one makes room in which nobody has been for longest; where somebody is in each,
  // it cannot be entered.
  Namespaces(KeyspaceLimits limits, std::size_t max_named, HashSeed seed = {});

  Namespace& common() { return *common_; }
  const Namespace& common() const { return *common_; }

  // Makes a namespace, which must not be there yet, with room of its own: what is in it does not
  // count for the limits on keys and bytes of all others, and theirs do not hold in it.  Where they
  // have any it may hold kReservedBytes.  It stays when it is empty.
  void reserve(std::string name);
  static constexpr std::size_t kReservedBytes = 64 << 20;
  bool is_reserved(std::string_view name) const {
    const Namespace* ns = find(name);
    return ns != nullptr && ns->is_reserved;
  }

  // Carries out `request` in `namespace`, which is where the client is: the common namespace at
  // first. ENTER_NAMESPACE moves it.  Otherwise as Keyspace::execute().
  std::optional<std::string> execute(ClientId client, Namespace*& ns, const Request& request,
                                     MonoTime now, Replies& replies);

  // Whether `request` should be carried out later: there is room for what it stores, but not as
  // long as `unfreed` bytes of what is gone still take up memory.
  bool must_wait_for(std::size_t unfreed, ClientId client, const Namespace& ns,
                     const Request& request) const;

  // Has a large request carried out, after those that came before it: by proceed(), a step at each
  // call.  Until it is done, its client must not ask anything else nor be disconnected, and what
  // `request` refers to must stay.
  void enqueue(ClientId client, Namespace& ns, const Request& request);

  // Whether proceed() has something to do.
  bool has_work() const { return !large_.empty() || needs_cleanup_ || !former_.empty(); }

  // A large request that is done.
  struct Done {
    ClientId client;
    std::optional<std::string> fault;  // why the client must be disconnected, if it must be
  };
  // Does a piece of work that costs as much as `effort` names: on the first of the large requests,
  // on what ended waits have left behind, or on what is to be freed, in turns.
  std::optional<Done> proceed(std::size_t effort, MonoTime now, Replies& replies);

  // Forgets a client, as Keyspace::disconnect() does.  A named namespace without a connection and
  // without anything in it is gone then.
  void disconnect(ClientId client, Namespace& ns, MonoTime now, Replies& replies);

  // Makes the common namespace an empty one.  What its clients waited for, left as last wills, and
  // large requests that are not done, is forgotten, so they are to be closed.  proceed() frees what
  // was in it.
  void renew_common();
  // About what proceed() has still to free; it is not counted in usage().
  std::size_t former_bytes() const;

  // When expire() has something to do next, or earlier.
  std::optional<MonoTime> deadline() const { return deadline_; }
  // Of very many that end at one moment it ends some; deadline() is past then.
  void expire(MonoTime now, Replies& replies);

  // The namespace of this name, if there is one.
  const Namespace* find(std::string_view name) const;
  std::size_t named_count() const { return named_.size(); }

  // Calls `visit(const Namespace&)` for each namespace, the common one first.
  template <class Visit>
  void for_each(Visit visit) const {
    visit(*common_);
    for (const auto& [name, ns] : named_) visit(*ns);
  }

  Usage usage() const;  // of all namespaces, and of what outside() pays for
  // For what is kept beside the namespaces, under the same limits as theirs.  It must not outlive
  // this object.
  Budget outside() { return Budget(limits_, &usage_); }
  std::size_t wait_count() const;

 private:
  std::unique_ptr<Namespace> make(std::string name);
  std::optional<std::string> enter(ClientId client, Namespace*& ns, std::string_view name,
                                   MonoTime now, Replies& replies);
  void drop_if_unused(Namespace& ns);
  void make_room();
  void free_later(Keyspace& keyspace);
  void note_pending_work(const Keyspace& touched);
  std::optional<Done> go_on(std::size_t effort, MonoTime now, Replies& replies);
  void clean_up(std::size_t effort, MonoTime now, Replies& replies);
  void free_some(std::size_t effort);

  struct Queued {
    ClientId client;
    Namespace* ns;
    Request request;
    bool has_begun = false;
  };

  KeyspaceLimits limits_;
  std::size_t max_named_;
  HashSeed seed_;
  Usage usage_;  // of all but the reserved ones
  std::unique_ptr<Namespace> common_;
  std::map<std::string, std::unique_ptr<Namespace>, std::less<>> named_;
  std::vector<Namespace*> reserved_;
  std::map<std::uint64_t, Namespace*> deserted_;  // by Namespace::left
  std::uint64_t departures_ = 0;
  std::optional<MonoTime> deadline_;
  std::deque<Queued> large_;
  bool needs_cleanup_ = false;  // some namespace has leftovers
  std::string last_cleaned_;    // the namespace that was last asked for them
  struct Former {
    Keyspace keyspace;
    std::size_t bytes;
  };
  std::deque<Former> former_;  // to be freed
  unsigned kind_of_work_ = 0;  // that proceed() did last
};

}  // namespace ddprun::store
