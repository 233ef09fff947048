// SPDX-License-Identifier: BSD-3-Clause
//
// Tells the workers' store whom to expect, so that its page /status can say who has not come.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/decide/ranks.h"
#include "store/base/endpoint.h"
#include "store/client.h"

namespace ddprun::rendezvous {

// The rank of a worker that is announced under this name; nullopt for a name of somebody else's.
std::optional<int> announced_rank(std::string_view name);

// What this node has announced.
//
// Threads: used from the executor's only thread.  Lifetime: must outlive make().
class Announcement {
 public:
  explicit Announcement(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // Announces the world and `workers`, which this node has started, to the store at `master`, until
  // withdraw() or the next make(); nothing where that store is not ours.  Where it cannot be
  // reached within some seconds, or closes the connection at the announcement, as the workers then
  // are not served either, `unreachable` is told why: the only place where that shows on this node
  // before the workers' own limits, which are minutes.
  boost::asio::awaitable<void> make(Endpoint master, int world_size,
                                    std::vector<StartedWorker> workers,
                                    std::function<void(const std::string&)> unreachable);

  void withdraw();

 private:
  boost::asio::any_io_executor executor_;
  std::uint64_t version_ = 0;              // counts make() and withdraw()
  std::unique_ptr<store::Client> client_;  // as long as it is connected, the store remembers
};

}  // namespace ddprun::rendezvous
