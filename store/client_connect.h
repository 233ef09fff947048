// SPDX-License-Identifier: BSD-3-Clause
//
// How a client reaches a server before the two speak: addresses and pauses.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <random>
#include <string>

#include "store/async.h"
#include "store/base/endpoint.h"
#include "store/base/time.h"

namespace ddprun::store {

// The pauses between attempts: 20 ms at first, half as long again each time, 2 s at most, each
// shortened or stretched at random by a quarter, so that a thousand nodes do not come in step.
class ConnectPause {
 public:
  Duration next();

 private:
  std::minstd_rand random_{std::random_device{}()};
  Duration pause_ = std::chrono::milliseconds(20);
};

// "node0:29500 (10.0.0.7)", or just "10.0.0.7:29500" where that is what was asked for.
std::string name_of(const Endpoint& endpoint, const boost::asio::ip::tcp::endpoint& address);

// "10.0.0.7"; an IPv4 address that is mapped into IPv6 is shown as IPv4.
std::string numeric(const boost::asio::ip::address& address);

// Connects to one address, for a few seconds at most; the descriptor is close-on-exec.
Async<boost::asio::ip::tcp::socket> connect_to(boost::asio::any_io_executor executor,
                                               boost::asio::ip::tcp::endpoint address,
                                               MonoTime deadline);

// Whether an HTTP server that is none of ours answers at `address`, within half a second.
boost::asio::awaitable<bool> speaks_http(boost::asio::any_io_executor executor,
                                         boost::asio::ip::tcp::endpoint address);

}  // namespace ddprun::store
