// SPDX-License-Identifier: BSD-3-Clause
//
// The spaces of one server: the common one, in which every connection begins and every torch client
// stays, and named ones, which a client of ours enters by ENTER.  Each is a keyspace of its own, so
// that two parties share a port and never see each other's keys.  No socket, no clock, no log.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "store/base/time.h"
#include "store/decide/keyspace.h"
#include "store/decide/wire.h"

namespace ddprun::store {

// One space.
struct Space {
  std::string name;  // empty for the common one
  Keyspace keyspace;
  std::size_t members = 0;  // the connections that are in it; not counted for the common one
};

// Threads: not safe for concurrent use.
class Spaces {
 public:
  // The limits on keys and bytes hold for all spaces together.  A space beyond `max_named` cannot
  // be entered.
  Spaces(KeyspaceLimits limits, std::size_t max_named, HashSeed seed = {});

  Space& common() { return *common_; }
  const Space& common() const { return *common_; }

  // Makes a space, which must not be there yet, with room of its own: what is in it does not count
  // for the limits on keys and bytes of all others, and theirs do not hold in it.  Where they have
  // any it may hold kReservedBytes.  It stays when nobody is in it.
  void reserve(std::string name);
  static constexpr std::size_t kReservedBytes = 64 << 20;

  // Carries out `request` in `space`, which is where the client is: the common space at first.
  // ENTER moves it.  Otherwise as Keyspace::execute().
  std::optional<std::string> execute(ClientId client, Space*& space, const Request& request,
                                     MonoTime now, Replies& replies);

  // Whether `request` is a large one (Keyspace::begin()), which enqueue() takes.
  static bool is_large(const Space& space, const Request& request) {
    return space.keyspace.is_large(request);
  }

  // Has a large request carried out, after those that came before it: by proceed(), a step at each
  // call.  Until it is done, its client must not ask anything else nor be disconnected, and what
  // `request` refers to must stay.
  void enqueue(ClientId client, Space& space, const Request& request);

  // Whether proceed() has something to do.
  bool has_work() const { return !large_.empty() || is_untidy_; }

  // A large request that is done.
  struct Done {
    ClientId client;
    std::optional<std::string> fault;  // why the client must be disconnected, if it must be
  };
  // Does a piece of work that costs as much as `effort` names.
  std::optional<Done> proceed(std::size_t effort, MonoTime now, Replies& replies);

  // Forgets a client, as Keyspace::disconnect() does.  A named space without a connection and
  // without anything in it is gone then.
  void disconnect(ClientId client, Space& space, MonoTime now, Replies& replies);

  // Makes the common space an empty one.  What its clients waited for, left as wills, and large
  // requests that are not done, is forgotten, so they are to be closed.
  void renew_common();

  // When expire() has something to do next, or earlier.
  std::optional<MonoTime> deadline() const { return deadline_; }
  void expire(MonoTime now, Replies& replies);

  // The space of this name, if there is one.
  const Space* find(std::string_view name) const;
  std::size_t named_count() const { return named_.size(); }

  // Calls `visit(const Space&)` for each space, the common one first.
  template <class Visit>
  void for_each(Visit visit) const {
    visit(*common_);
    for (const auto& [name, space] : named_) visit(*space);
  }

  Usage usage() const;  // of all spaces
  std::size_t wait_count() const;

 private:
  std::unique_ptr<Space> make(std::string name);
  std::optional<std::string> enter(ClientId client, Space*& space, std::string_view name,
                                   MonoTime now, Replies& replies);
  void drop_if_unused(Space& space);
  void heed(const Keyspace& touched);
  bool tidy(std::size_t effort);

  struct Queued {
    ClientId client;
    Space* space;
    Request request;
    bool has_begun = false;
  };

  KeyspaceLimits limits_;
  std::size_t max_named_;
  HashSeed seed_;
  Usage usage_;  // of all but the reserved one
  std::unique_ptr<Space> common_;
  std::map<std::string, std::unique_ptr<Space>, std::less<>> named_;
  Space* reserved_ = nullptr;
  std::optional<MonoTime> deadline_;
  std::deque<Queued> large_;
  bool is_untidy_ = false;  // some space has leftovers
};

}  // namespace ddprun::store
