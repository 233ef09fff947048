// SPDX-License-Identifier: BSD-3-Clause
//
// What one place where a run may be says to another one (request::Knock): how it is carried there,
// and the answer back.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <optional>
#include <string>

#include "rendezvous/decide/messages.h"
#include "store/auth/secret.h"
#include "store/base/endpoint.h"
#include "store/client.h"
#include "store/resolver.h"

namespace ddprun::rendezvous {

// How long a connection, and each answer, is waited for.
inline constexpr Duration kKnockPatience = std::chrono::seconds(1);

// What has come of a knock.
struct Knocked {
  std::optional<command::Moved> moved{};  // where the run is to go, if it is to go there
  bool is_clear = false;      // no run is there: it says so, or no host that could have one listens
  bool is_unreached = false;  // no connection came about
};

// Puts an encoded knock into the inbox of the coordinator there, and reads from `mailbox` what it
// says.  With an empty `mailbox` no answer is waited for.
store::Async<Knocked> knock_at(store::Client& client, std::string message, std::string mailbox);

// The same between daemons, which meet others only by what the nodes of a run say: each knock has a
// connection of its own.
//
// Threads: used from the executor's only thread.  Lifetime: must outlive its calls.
class Knocker {
 public:
  // `secret`: of the nodes; the other place must know it.
  Knocker(boost::asio::any_io_executor executor, std::optional<store::Secret> secret);

  store::Async<std::optional<command::Moved>> ask(Endpoint place, std::string message,
                                                  std::string mailbox);

 private:
  boost::asio::any_io_executor executor_;
  std::optional<store::Secret> secret_;
  store::Resolver resolver_;
};

}  // namespace ddprun::rendezvous
