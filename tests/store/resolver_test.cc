// SPDX-License-Identifier: BSD-3-Clause
#include "store/resolver.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <optional>

#include "tests/support/event_loop.h"

using namespace std::chrono_literals;
using ddprun::Endpoint;
using ddprun::Errc;
using ddprun::Error;
using ddprun::MonoTime;
using ddprun::store::Async;
using ddprun::store::Resolver;
namespace asio = boost::asio;

namespace {

// A name server that counts how often it is asked, and a clock that a test moves.
struct NameServer {
  asio::io_context context;
  MonoTime now{1h};
  int asked = 0;
  bool is_there = true;
  Resolver resolver{[this](Endpoint endpoint) { return answer(std::move(endpoint)); },
                    [this] { return now; }};

  Async<Resolver::Addresses> answer(Endpoint endpoint) {
    ++asked;
    if (!is_there) co_return Error{Errc::Closed, "resolve " + endpoint.host};
    Resolver::Addresses addresses;
    addresses.emplace_back(asio::ip::make_address("10.0.0.7"), endpoint.port);
    co_return addresses;
  }
  ddprun::Result<Resolver::Addresses> resolve(const std::string& host, std::uint16_t port = 1) {
    std::optional<ddprun::Result<Resolver::Addresses>> found;
    asio::co_spawn(context, resolver.resolve({.host = host, .port = port}),
                   [&](std::exception_ptr, auto result) { found = std::move(result); });
    REQUIRE(ddprun::test::run_until(context, [&] { return found.has_value(); }));
    return std::move(*found);
  }
};

}  // namespace

TEST_CASE("Resolver: an answer counts for five seconds, for each port") {
  NameServer names;
  for (std::uint16_t port : {1, 2, 3}) {
    auto found = names.resolve("node0", port);
    REQUIRE(found.has_value());
    CHECK(found->front().port() == port);
  }
  CHECK(names.asked == 1);
  CHECK(names.resolve("node1").has_value());
  CHECK(names.asked == 2);
  names.now += 4999ms;
  CHECK(names.resolve("node0").has_value());
  CHECK(names.asked == 2);
  names.now += 1ms;
  CHECK(names.resolve("node0").has_value());
  CHECK(names.asked == 3);
}

TEST_CASE("Resolver: a failure counts for one second") {
  NameServer names;
  names.is_there = false;
  CHECK(!names.resolve("node0").has_value());
  names.is_there = true;
  auto again = names.resolve("node0");
  REQUIRE(!again.has_value());
  CHECK(again.error().code == Errc::Closed);
  CHECK(names.asked == 1);
  names.now += 1s;
  CHECK(names.resolve("node0").has_value());
}
