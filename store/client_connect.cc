// SPDX-License-Identifier: BSD-3-Clause
#include "store/client_connect.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <tuple>

#include "store/client.h"
#include "store/socket.h"

namespace ddprun::store {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using namespace asio::experimental::awaitable_operators;

namespace {

constexpr Duration kLongestPause = std::chrono::seconds(2);

// An address that swallows what it is sent must not use up the time of the others.
constexpr Duration kAddressTimeout = std::chrono::seconds(5);

std::string in_words(Duration duration) {
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return std::to_string(ms) + " ms";
}

}  // namespace

Async<std::unique_ptr<Client>> Client::connect(asio::any_io_executor executor, Endpoint endpoint,
                                               ClientConfig config) {
  MonoTime begin = std::chrono::steady_clock::now();
  MonoTime deadline = begin + config.connect_timeout;
  ConnectPause pause;
  for (std::size_t tries = 1;; ++tries) {
    std::string answers;
    auto addresses = co_await resolve(executor, endpoint);
    if (!addresses) answers = to_string(addresses.error());
    for (std::size_t i = 0; addresses && i < addresses->size(); ++i) {
      const asio::ip::tcp::endpoint& address = (*addresses)[i];
      auto client =
          co_await connect_once(executor, address, name_of(endpoint, address), config, deadline);
      if (client) co_return client;
      answers += (answers.empty() ? "" : "; ") + to_string(client.error());
    }
    Duration next = pause.next();
    MonoTime now = std::chrono::steady_clock::now();
    if (now + next >= deadline) {
      co_return Error{Errc::TimedOut, "connect to " + to_string(endpoint) + ": gave up after " +
                                          in_words(now - begin) + " and " + std::to_string(tries) +
                                          (tries == 1 ? " try: " : " tries: ") + answers};
    }
    asio::steady_timer timer(executor, now + next);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

Async<std::unique_ptr<Client>> Client::connect_once(asio::any_io_executor executor,
                                                    asio::ip::tcp::endpoint address,
                                                    std::string peer, ClientConfig config,
                                                    MonoTime deadline) {
  auto socket = co_await connect_to(executor, address, deadline);
  if (!socket) co_return socket.error();
  std::unique_ptr<Client> client(new Client(std::move(*socket), std::move(peer), config));
  auto greeted = co_await client->greet(
      std::min(deadline, std::chrono::steady_clock::now() + config.reply_timeout));
  if (!greeted) co_return greeted.error();
  if (config.probes_extensions) {
    auto probed = co_await client->probe(deadline);
    if (!probed && probed.error().code != Errc::Closed) co_return probed.error();
    if (!probed) {
      config.probes_extensions = false;
      co_return co_await connect_once(executor, address, client->peer(), config, deadline);
    }
  }
  co_return client;
}

Duration ConnectPause::next() {
  std::uniform_real_distribution<double> factor(0.75, 1.25);
  auto pause = std::chrono::duration_cast<Duration>(pause_ * factor(random_));
  pause_ = std::min(pause_ + pause_ / 2, kLongestPause);
  return pause;
}

Async<std::vector<tcp::endpoint>> resolve(asio::any_io_executor executor, Endpoint endpoint) {
  std::vector<tcp::endpoint> addresses;
  if (endpoint.host == "localhost") {
    addresses.emplace_back(asio::ip::address_v4::loopback(), endpoint.port);
    addresses.emplace_back(asio::ip::address_v6::loopback(), endpoint.port);
    co_return addresses;
  }
  error_code error;
  asio::ip::address numeric = asio::ip::make_address(endpoint.host, error);
  if (!error) {
    addresses.emplace_back(numeric, endpoint.port);
    co_return addresses;
  }
  tcp::resolver resolver(executor);
  auto [failure, found] = co_await resolver.async_resolve(
      endpoint.host, std::to_string(endpoint.port), asio::as_tuple(asio::use_awaitable));
  if (failure) co_return Error{failure, "resolve " + endpoint.host};
  for (const auto& entry : found) addresses.push_back(entry.endpoint());
  co_return addresses;
}

std::string name_of(const Endpoint& endpoint, const tcp::endpoint& address) {
  std::string numeric = address.address().to_string();
  std::string name = to_string(endpoint);
  return numeric == endpoint.host ? name : name + " (" + numeric + ")";
}

Async<tcp::socket> connect_to(asio::any_io_executor executor, tcp::endpoint address,
                              MonoTime deadline) {
  std::string what =
      "connect to " + to_string(Endpoint{address.address().to_string(), address.port()});
  UniqueFd fd(::socket(address.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) co_return system_error(errno, what);
  tcp::socket socket(executor, address.protocol(), fd.release());
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  asio::steady_timer timer(executor,
                           std::min(deadline, std::chrono::steady_clock::now() + kAddressTimeout));
  auto outcome = co_await (socket.async_connect(address, asio::as_tuple(asio::use_awaitable)) ||
                           timer.async_wait(asio::as_tuple(asio::use_awaitable)));
  if (outcome.index() == 1) co_return Error{Errc::TimedOut, what + ": no answer"};
  error_code error = std::get<0>(std::get<0>(outcome));
  if (error) co_return Error{error, what};
  co_return socket;
}

}  // namespace ddprun::store
