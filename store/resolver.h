// SPDX-License-Identifier: BSD-3-Clause
//
// The addresses of a name.  A Resolver looks a name up once in a while, however often its addresses
// are asked for: a thousand nodes that have lost their host would otherwise ask the name server
// several times a second each.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"

namespace ddprun::store {

// The addresses of an endpoint.  A numeric address and "localhost" ask no name server.
Async<std::vector<boost::asio::ip::tcp::endpoint>> resolve(boost::asio::any_io_executor executor,
                                                           Endpoint endpoint);

// Keeps an answer for 5 s and a failure for 1 s.  Threads: used from the executor's thread only.
// Lifetime: must outlive its calls.
class Resolver {
 public:
  using Addresses = std::vector<boost::asio::ip::tcp::endpoint>;
  using Lookup = std::function<Async<Addresses>(Endpoint)>;

  explicit Resolver(boost::asio::any_io_executor executor);
  // With another look-up and another clock, for tests.
  Resolver(Lookup lookup, std::function<MonoTime()> clock)
      : lookup_(std::move(lookup)), clock_(std::move(clock)) {}

  // The addresses of an endpoint, with its port; fails as resolve() does.
  Async<Addresses> resolve(Endpoint endpoint);

 private:
  struct Answer {
    Result<Addresses> addresses;
    MonoTime until;
  };

  Lookup lookup_;
  std::function<MonoTime()> clock_;
  std::map<std::string, Answer> answers_;  // by host name
};

}  // namespace ddprun::store
