// SPDX-License-Identifier: BSD-3-Clause
#include "store/resolver.h"

#include "store/client_connect.h"
#include "store/clock.h"

namespace ddprun::store {
namespace {

constexpr Duration kKeepAnswer = std::chrono::seconds(5);
constexpr Duration kKeepFailure = std::chrono::seconds(1);

}  // namespace

Resolver::Resolver(boost::asio::any_io_executor executor)
    : Resolver(
          [executor](Endpoint endpoint) { return store::resolve(executor, std::move(endpoint)); },
          mono_now) {}

Async<Resolver::Addresses> Resolver::resolve(Endpoint endpoint) {
  auto known = answers_.find(endpoint.host);
  if (known == answers_.end() || clock_() >= known->second.until) {
    auto found = co_await lookup_(endpoint);
    MonoTime until = clock_() + (found ? kKeepAnswer : kKeepFailure);
    known = answers_.insert_or_assign(endpoint.host, Answer{std::move(found), until}).first;
  }
  if (!known->second.addresses) co_return known->second.addresses.error();
  Addresses addresses = *known->second.addresses;
  for (auto& address : addresses) address.port(endpoint.port);
  co_return addresses;
}

}  // namespace ddprun::store
