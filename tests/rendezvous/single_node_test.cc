// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <optional>

#include "store/client.h"
#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

struct Loop {
  boost::asio::io_context loop;

  template <class T>
  T run(boost::asio::awaitable<T> task) {
    std::optional<T> result;
    boost::asio::co_spawn(loop, std::move(task),
                          [&](std::exception_ptr, T value) { result = std::move(value); });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return std::move(*result);
  }
};

}  // namespace

TEST_SUITE("rendezvous/single_node") {
  TEST_CASE_FIXTURE(Loop,
                    "each round has the whole world and a store that is empty and reachable") {
    SingleNodeHandler handler(loop.get_executor(), {.self = {.local_world_size = 3}});
    for (std::uint64_t number = 0; number < 3; ++number) {
      auto round = run(handler.next_round());
      REQUIRE(round.has_value());
      CHECK(round->number == number);
      CHECK(round->ranks.world_size == 3);
      auto client = run(store::Client::connect(loop.get_executor(), round->master));
      REQUIRE(client.has_value());
      CHECK(run((*client)->num_keys()).value() == 0);
      CHECK(run((*client)->set("k", "v")).has_value());
    }
    handler.close();
  }

  TEST_CASE_FIXTURE(Loop, "a port that was asked for is used in every round") {
    SingleNodeHandler first(loop.get_executor(), {});
    std::uint16_t port = run(first.next_round()).value().master.port;
    first.close();
    SingleNodeHandler handler(loop.get_executor(), {.master = {"127.0.0.1", port}});
    CHECK(run(handler.next_round()).value().master.port == port);
    CHECK(run(handler.next_round()).value().master.port == port);
  }

  TEST_CASE_FIXTURE(Loop, "any loopback address can be the workers' meeting point") {
    SingleNodeHandler handler(loop.get_executor(), {.master = {"127.0.0.2", 0}});
    auto round = run(handler.next_round());
    REQUIRE(round.has_value());
    CHECK(round->master.host == "127.0.0.2");
  }

  TEST_CASE_FIXTURE(Loop, "a port that is taken is named") {
    SingleNodeHandler first(loop.get_executor(), {});
    std::uint16_t port = run(first.next_round()).value().master.port;
    SingleNodeHandler second(loop.get_executor(), {.master = {"127.0.0.1", port}});
    auto round = run(second.next_round());
    REQUIRE(round.has_error());
    CHECK(to_string(round.error()) ==
          "worker store: bind 127.0.0.1:" + std::to_string(port) + ": Address already in use");
  }
}
