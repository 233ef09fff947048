// SPDX-License-Identifier: BSD-3-Clause
#include "store/resolver.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/client.h"
#include "store/server.h"
#include "tests/support/event_loop.h"

using namespace std::chrono_literals;
using ddprun::Endpoint;
using ddprun::Errc;
using ddprun::Error;
using ddprun::MonoTime;
using ddprun::store::Resolver;
namespace asio = boost::asio;

namespace {

// A name server that counts how often it is asked, and a clock that a test moves.
struct NameServer {
  asio::io_context context;
  MonoTime now{1h};
  int asked = 0;
  bool is_there = true;
  std::string address = "10.0.0.7";
  bool is_mute = false;
  Resolver::OnAnswer unanswered;  // while it is mute
  std::vector<std::string> lines;
  Resolver resolver{context.get_executor(), [this](std::string line) { lines.push_back(line); },
                    [this](Endpoint endpoint, Resolver::OnAnswer on_answer) {
                      return look_up(std::move(endpoint), std::move(on_answer));
                    },
                    [this] { return now; }};

  std::shared_ptr<void> look_up(const Endpoint& endpoint, Resolver::OnAnswer on_answer) {
    ++asked;
    if (is_mute) {
      unanswered = std::move(on_answer);
    } else {
      asio::post(context, [this, endpoint, on_answer] { on_answer(answer(endpoint)); });
    }
    return std::make_shared<int>();
  }
  ddprun::Result<Resolver::Addresses> answer(const Endpoint& endpoint) const {
    if (!is_there) return Error{Errc::Closed, "resolve " + endpoint.host};
    Resolver::Addresses addresses;
    addresses.emplace_back(asio::ip::make_address(address), endpoint.port);
    return addresses;
  }
  ddprun::Result<Resolver::Addresses> resolve(const std::string& host, std::uint16_t port = 1,
                                              ddprun::Duration patience = 1h) {
    std::optional<ddprun::Result<Resolver::Addresses>> found;
    asio::co_spawn(
        context,
        resolver.resolve({.host = host, .port = port}, std::chrono::steady_clock::now() + patience),
        [&](std::exception_ptr, auto result) { found = std::move(result); });
    REQUIRE(ddprun::test::run_until(context, [&] { return found.has_value(); }));
    return std::move(*found);
  }
  bool connects(std::uint16_t port) {
    ddprun::store::ClientConfig config;
    config.tries_once = true;
    config.resolver = &resolver;
    std::optional<bool> is_connected;
    asio::co_spawn(context,
                   ddprun::store::Client::connect(context.get_executor(),
                                                  {.host = "node0", .port = port}, config),
                   [&](std::exception_ptr, const auto& client) { is_connected = bool(client); });
    REQUIRE(ddprun::test::run_until(context, [&] { return is_connected.has_value(); }));
    return *is_connected;
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

TEST_CASE("Resolver: the last good answer is used while there is no newer one") {
  NameServer names;
  REQUIRE(names.resolve("node0").has_value());
  names.now += 5s;
  names.is_there = false;
  CHECK(names.resolve("node0").has_value());
  CHECK(names.asked == 2);
  names.now += 1s;
  names.is_mute = true;
  CHECK(names.resolve("node0").has_value());
  CHECK(names.resolve("node0").has_value());
  CHECK(names.asked == 3);  // one at a time
  names.is_there = true;
  names.is_mute = false;
  names.address = "10.0.0.8";
  names.unanswered(names.answer({.host = "node0", .port = 1}));
  auto found = names.resolve("node0");
  REQUIRE(found.has_value());
  CHECK(found->front().address().to_string() == "10.0.0.8");
}

TEST_CASE("Resolver: a host that has moved is found a quarter of a second after it refused") {
  NameServer names;
  auto moved = ddprun::store::Server::listen(names.context.get_executor(),
                                             {.listen = {.host = "127.0.0.2", .port = 0}});
  REQUIRE(moved.has_value());
  const std::uint16_t port = (*moved)->port();
  names.address = "127.0.0.1";
  CHECK_FALSE(names.connects(port));
  names.address = "127.0.0.2";
  names.now += 249ms;
  CHECK_FALSE(names.connects(port));
  CHECK(names.asked == 1);
  names.now += 1ms;
  CHECK(names.connects(port));
  CHECK(names.asked == 2);
  names.now += 4999ms;
  CHECK(names.connects(port));
  CHECK(names.asked == 2);  // it has proved right
  bool is_stopped = false;
  asio::co_spawn(names.context, (*moved)->stop(), [&](std::exception_ptr) { is_stopped = true; });
  CHECK(ddprun::test::run_until(names.context, [&] { return is_stopped; }));
}

TEST_CASE("Resolver: a host that stays away is not looked up four times a second for ever") {
  NameServer names;
  names.address = "127.0.0.1";
  constexpr std::uint16_t kNobody = 1;
  for (int i = 0; i < 600; ++i) {
    CHECK_FALSE(names.connects(kNobody));
    names.now += 50ms;
  }
  CHECK(names.asked >= 30);
  CHECK(names.asked <= 38);
}

TEST_CASE("Resolver: a caller's deadline ends its wait, and the look-up goes on") {
  NameServer names;
  names.is_mute = true;
  for (int i = 0; i < 2; ++i) {
    auto found = names.resolve("node0", 1, 10ms);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Errc::TimedOut);
    CHECK(found.error().context == "resolve node0: the name service does not answer");
  }
  CHECK(names.asked == 1);
  names.unanswered(names.answer({.host = "node0", .port = 1}));
  CHECK(names.resolve("node0", 1, 10ms).has_value());
  CHECK(names.asked == 1);
}

TEST_CASE("Resolver: a look-up that stands still is told of, once until there is an answer") {
  NameServer names;
  names.is_mute = true;
  CHECK_FALSE(names.resolve("node0", 1, Resolver::kStall + 500ms).has_value());
  REQUIRE(names.lines.size() == 1);
  CHECK(names.lines[0] == "'look up node0' has stood still for 2.0 s");
}

TEST_CASE("Resolver: numbers need no name server") {
  NameServer names;
  names.is_there = false;
  CHECK(names.resolve("10.1.2.3").has_value());
  CHECK(names.resolve("localhost")->size() == 2);
  CHECK(names.asked == 0);
}
