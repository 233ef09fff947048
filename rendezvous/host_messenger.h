// SPDX-License-Identifier: BSD-3-Clause
//
// What a node says to the hosts of its run on a connection of its own: a knock, from a host of this
// process to another one, and a message that must get through at the end.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator_service.h"
#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/network_config.h"
#include "rendezvous/dialer.h"
#include "rendezvous/knocker.h"
#include "rendezvous/registered_host.h"
#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"
#include "store/client.h"

namespace ddprun::rendezvous {

// Threads: used from the executor's only thread.  Lifetime: borrows its parts; must outlive its
// calls.
class HostMessenger {
 public:
  struct Parts {
    Dialer& dialer;
    const NetworkConfig& config;
    RegisteredHost* registered;  // nullptr: the endpoint says who hosts
  };
  HostMessenger(boost::asio::any_io_executor executor, Parts parts)
      : executor_(executor), parts_(parts) {}

  // Knocks for `asks`, which is reached at `from`; no `place`: at the endpoint.  Where nobody can
  // be reached it is clear.  An error: one was reached and does not answer, as a host does that
  // gives way itself or has no part in the run.
  store::Async<Knocked> ask(std::optional<Endpoint> place, CoordinatorService& asks, Endpoint from);

  // Says this, an encoded message, to the coordinators at these places, each as it opens, until one
  // has taken it and all have been tried; at most until `end`.
  boost::asio::awaitable<void> tell(std::vector<std::optional<Endpoint>> places,
                                    std::string message, MonoTime end);

 private:
  store::Async<std::unique_ptr<store::Client>> connect(std::optional<Endpoint> place,
                                                       Duration longest);
  store::Async<void> tell_once(std::optional<Endpoint> place, std::string message, MonoTime end);

  boost::asio::any_io_executor executor_;
  Parts parts_;
  std::uint64_t knocks_ = 0;
};

}  // namespace ddprun::rendezvous
