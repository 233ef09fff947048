// SPDX-License-Identifier: BSD-3-Clause
//
// What an agent asks of a rendezvous, whatever kind it is: the next round.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>

#include "rendezvous/ranks.h"
#include "store/base/endpoint.h"
#include "store/base/error.h"

namespace ddprun::rendezvous {

// One numbered completion of the rendezvous, as one node sees it.
struct Round {
  std::uint64_t number = 0;  // 0, 1, ... over the life of the run
  Assignment ranks;
  Endpoint master;  // where the workers of this round meet: an empty store of its own
};

// Threads: used from the executor's only thread.
class Handler {
 public:
  virtual ~Handler() = default;

  // Leaves the round before, if any, and completes with the next one.  The worker store of the
  // round before is closed, so that whoever still waits in it fails at once.  No two calls overlap.
  virtual boost::asio::awaitable<Result<Round>> next_round() = 0;

  // Leaves for good and closes the worker store.
  virtual void close() = 0;
};

}  // namespace ddprun::rendezvous
