// SPDX-License-Identifier: BSD-3-Clause
//
// Who coordinates at a store.  Beside torch's own server none does; the first node there becomes
// the one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>

#include "rendezvous/coordinator_service.h"
#include "store/async.h"
#include "store/client.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.
// Lifetime: stop() must have completed before the destructor runs.
class StoreCoordinator {
 public:
  struct Parts {
    std::string host;        // what people call this node
    bool is_static = false;  // the static backend, whose workers need the store for themselves
    std::function<void(const std::string&)> log;  // for people
    // Another connection to that store.
    std::function<store::Async<std::unique_ptr<store::Client>>()> connect;
  };
  StoreCoordinator(boost::asio::any_io_executor executor, Parts parts);
  ~StoreCoordinator();

  // The record of the one at the store that `client` is connected to.
  store::Async<std::string> find(store::Client& client);

  // That of this process; nullptr: it is none.
  CoordinatorService* service() const { return service_.get(); }

  void close();
  boost::asio::awaitable<void> stop();

 private:
  store::Async<bool> beats(store::Client& client, std::string pulse);
  store::Async<std::string> claim(store::Client& client);

  boost::asio::any_io_executor executor_;
  Parts parts_;
  std::unique_ptr<CoordinatorService> service_;
};

}  // namespace ddprun::rendezvous
