// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/crowd.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun::store;

namespace {

struct Clients {
  Crowd crowd;
  ClientId last = 0;

  // Adds `count` clients; the last one.
  ClientId come(const std::string& host, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) crowd.add(host, ++last);
    return last;
  }
};

// Numeric addresses, all of other networks.
std::string address(std::size_t number) {
  return "10.0." + std::to_string(number / 256) + "." + std::to_string(number % 256);
}
std::string address6(std::size_t network, std::size_t host) {
  return "fd00:0:0:" + std::to_string(network) + "::" + std::to_string(host + 1);
}

}  // namespace

TEST_SUITE("store/decide/crowd") {
  TEST_CASE_FIXTURE(Clients, "the last of an address that has too many gives way to all") {
    CHECK_FALSE(crowd.gives_way("10.0.0.9", 0));
    come("10.0.0.1", 2);
    ClientId before = come("10.0.0.2", 3);
    come("10.0.0.1", 1);
    ClientId latest = come("10.0.0.2", 1);
    CHECK(crowd.gives_way("10.0.0.9", 8 * 3) == latest);
    CHECK(crowd.gives_way("10.0.0.2", 8 * 3) == latest);  // to one of its own, too
    CHECK_FALSE(crowd.gives_way("10.0.0.9", 8 * 4));
    crowd.remove("10.0.0.2", latest);
    CHECK(crowd.gives_way("10.0.0.9", 8 * 2) == before);
    crowd.remove("10.0.0.2", before);
    CHECK_FALSE(crowd.gives_way("10.0.0.9", 8 * 3));
  }

  TEST_CASE_FIXTURE(Clients,
                    "of many addresses that have much each, one gives way to who has less") {
    constexpr std::size_t kMost = 20 * 50;
    for (std::size_t i = 0; i < 20; ++i) come(address(i), 50);
    ClientId latest = come(address(7), 1);
    CHECK(crowd.gives_way("10.9.0.1", kMost) == latest);
    come("10.9.0.1", 49);
    CHECK(crowd.gives_way("10.9.0.1", kMost) == latest);
    come("10.9.0.1", 1);  // with one more it would have as many
    CHECK_FALSE(crowd.gives_way("10.9.0.1", kMost));
    CHECK_FALSE(crowd.gives_way(address(3), kMost));
  }

  TEST_CASE_FIXTURE(Clients,
                    "what a node has, and those of a few nodes behind one address, is kept") {
    constexpr std::size_t kMost = 100 * Crowd::kKept;
    for (std::size_t i = 0; i < 100; ++i) come(address(i), Crowd::kKept);
    CHECK_FALSE(crowd.gives_way("10.9.0.1", kMost));
    come(address(3), 1);
    CHECK(crowd.gives_way("10.9.0.1", kMost) == last);
    // And where there is much room, more.
    CHECK_FALSE(crowd.gives_way("10.9.0.1", (Crowd::kKept + 1) * Crowd::kKeptShare));
  }

  TEST_CASE_FIXTURE(Clients,
                    "a network of which one machine can have all addresses counts as one") {
    constexpr std::size_t kMost = 800;
    auto host = [](const char* kind, std::size_t number) {
      return kind == std::string("loopback") ? "127.0.1." + std::to_string(number)
                                             : address6(1, number);
    };
    for (const char* kind : {"loopback", "IPv6"}) {
      CAPTURE(kind);
      Clients clients;
      for (std::size_t i = 0; i < 100; ++i) clients.come(host(kind, i), 1);
      CHECK_FALSE(clients.crowd.gives_way(address6(2, 1), kMost));
      clients.come(host(kind, 100), 1);
      clients.come(address6(3, 1), 1);
      CHECK(clients.crowd.gives_way(address6(2, 1), kMost) == 101);
      // One that comes itself from there, and needs several connections, keeps them.
      ClientId own = clients.come(host(kind, 200), 2);
      CHECK(clients.crowd.gives_way(host(kind, 200), kMost) == 101);
      CHECK(clients.crowd.gives_way(address6(2, 1), kMost) == own);
    }
    for (std::size_t i = 0; i < 800; ++i) come(address(i), 1);
    CHECK_FALSE(crowd.gives_way("10.9.0.1", kMost));
  }

  TEST_CASE("who has gone is not counted any more") {
    Crowd crowd;
    for (ClientId client = 1; client <= 1000; ++client) crowd.add(address(client % 7), client);
    CHECK(crowd.gives_way("10.9.0.1", 8));
    for (ClientId client = 1; client <= 1000; ++client) crowd.remove(address(client % 7), client);
    crowd.remove(address(9), 1);
    CHECK_FALSE(crowd.gives_way("10.9.0.1", 0));
  }
}
