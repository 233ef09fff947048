// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/worker_store.h"

#include <doctest/doctest.h>

#include <cstddef>

using namespace ddprun;
using namespace ddprun::rendezvous;

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
