// SPDX-License-Identifier: BSD-3-Clause
//
// How much each client may put into a queue that one reader works off: who sends floods waits, and
// delays nobody else by more than the share of one address.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "store/decide/outgoing.h"

namespace ddprun::store {

// Counts what has been pushed since the queue was empty.
//
// Threads: not safe for concurrent use.
class QueueShares {
 public:
  // So many items of one client, and of one address, until all have been read.
  static constexpr std::size_t kOfClient = 8;
  static constexpr std::size_t kOfHost = 64;

  // This is the queue from now on; everyone has a whole share.
  void watch(std::string_view queue);
  const std::string& queue() const { return queue_; }

  // An item for `queue`: whether it may be pushed now, and is counted.  False: it is to wait until
  // the queue is empty.
  bool take(std::string_view queue, ClientId client, const std::string& host);

  // The queue is empty: everyone has a whole share again.
  void renew();

 private:
  std::string queue_;
  std::unordered_map<ClientId, std::size_t> clients_;
  std::unordered_map<std::string, std::size_t> hosts_;
};

}  // namespace ddprun::store
