// SPDX-License-Identifier: BSD-3-Clause
//
// A request for very many names or bytes, which is carried out step by step while other clients are
// served in between.  CHECK, MULTI_GET and LIST_KEYS answer what was true when they began: a
// snapshot keeps what the names that change meanwhile held then.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "store/decide/budget.h"
#include "store/decide/entries.h"
#include "store/decide/keyspace.h"
#include "store/decide/outgoing.h"
#include "store/decide/snapshot.h"
#include "store/decide/waits.h"

namespace ddprun::store {

// What it costs to carry `request` out, about, in names (effort.h).
std::size_t effort_of(const Request& request, const Entries& entries);

// Whether a LargeRequest can carry `request` out.
bool has_steps(const Request& request);

// Threads: not safe for concurrent use.  Lifetime: what the constructor is given must outlive it,
// and what `request` refers to must stay.
class LargeRequest {
 public:
  // There must be room for the pairs of a MULTI_SET; it is set aside until they are stored.
  LargeRequest(const KeyspaceLimits& limits, Budget& budget, Entries& entries, Waits& waits,
               const Context& context, const Request& request);
  // Gives back the room that is still set aside.
  ~LargeRequest();

  LargeRequest(const LargeRequest&) = delete;
  LargeRequest& operator=(const LargeRequest&) = delete;

  ClientId client() const { return client_; }

  using Progress = Keyspace::Progress;
  // Goes on for as much as `effort` names cost.
  Progress proceed(std::size_t effort, MonoTime now, Replies& replies);

  // The pieces of the reply stay together: takes what else the client is sent, from
  // `replies[first]` on, and sends it when the request is done.
  void hold_back(Replies& replies, std::size_t first);

 private:
  struct Steps;

  void keep_promise(std::size_t keys, std::size_t bytes);

  const KeyspaceLimits& limits_;
  Budget& budget_;
  Entries& entries_;
  Waits& waits_;
  ClientId client_;
  Request request_;
  std::size_t next_ = 0;      // index of the name or pair
  Value old_;                 // of an APPEND, what is copied
  Value grown_;               // the copy
  std::size_t prepared_ = 0;  // of the room for the piece of an APPEND
  Snapshot snapshot_;
  std::optional<Snapshot::Iterator> next_saved_;  // of a LIST_KEYS that has seen the whole table
  Wait* wait_ = nullptr;                          // of a WAIT
  std::size_t promised_keys_ = 0;                 // to the pairs of a MULTI_SET that are to come
  std::size_t promised_bytes_ = 0;
  Replies late_;
};

}  // namespace ddprun::store
