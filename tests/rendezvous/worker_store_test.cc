// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/worker_store.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/announce.h"
#include "tests/support/running_server.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

// What this node says of the store at `port`, when it announces a worker there.
std::vector<std::string> said_of(std::uint16_t port) {
  boost::asio::io_context context(1);
  Announcement announcement(context.get_executor());
  std::vector<std::string> said;
  std::vector<StartedWorker> workers{{.rank = 3, .pid = 7}};
  boost::asio::co_spawn(context,
                        announcement.make({"127.0.0.1", port}, 4, workers,
                                          [&](const std::string& line) { said.push_back(line); }),
                        boost::asio::detached);
  context.run_for(test::kLimit);
  return said;
}

}  // namespace

TEST_SUITE("rendezvous/worker_store") {
  TEST_CASE("half of the memory is for what is stored, a quarter each for what is on its way") {
    constexpr std::size_t kGiB = std::size_t{1} << 30;
    store::ServerConfig config;
    limit_memory(config, 8 * kGiB);
    CHECK(config.keyspace.max_bytes == 4 * kGiB);
    CHECK(config.max_reply_bytes == 2 * kGiB);
    CHECK(config.max_held_bytes == 2 * kGiB);
    config = {};
    limit_memory(config, 100 * kGiB);
    CHECK(config.max_held_bytes == 4 * kGiB);
    config = {};
    limit_memory(config, 1 << 20);
    CHECK(config.keyspace.max_bytes == kGiB);
  }

  TEST_CASE("a node that the workers' store refuses says so, and which option admits it") {
    if (::geteuid() != 0) {
      MESSAGE("skipped: only root can play another user");
      return;
    }
    test::RunningServer server;
    CHECK(said_of(server.port()).empty());
    server.ask([](store::Server& one) {
      one.renew_common_namespace(worker_store_gate({}, std::vector<std::string>{"10.0.0.7"}));
      return 0;
    });
    CHECK(said_of(server.port()).empty());
    REQUIRE(::seteuid(54321) == 0);
    std::vector<std::string> said = said_of(server.port());
    REQUIRE(::seteuid(0) == 0);
    REQUIRE(said.size() == 1);
    CHECK(said[0].find("does not serve this node") != std::string::npos);
    CHECK(said[0].find("--worker-store-allow") != std::string::npos);
    CHECK(said[0].find("--allow-users") != std::string::npos);
    REQUIRE(server.log().size() == 1);
    CHECK(server.log()[0].find("(--allow-users admits all)") != std::string::npos);
  }

  TEST_CASE("peers that are not known are all let in; of those that are, each address") {
    store::Gate gate = worker_store_gate({}, std::nullopt);
    CHECK(gate.any_machine);
    gate = worker_store_gate({}, std::vector<std::string>{"10.0.0.7", "nonsense", "fd00::7"});
    CHECK_FALSE(gate.any_machine);
    CHECK(gate.machines.lists("10.0.0.7"));
    CHECK(gate.machines.lists("fd00::7"));
    CHECK_FALSE(gate.machines.lists("10.0.0.8"));
    CHECK(gate.own.lists("127.0.0.1"));
    CHECK_FALSE(gate.any_user);
  }
}
