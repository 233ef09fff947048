// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using ddprun::store::ExpectedClients;

namespace {

std::string missing(const ExpectedClients& clients) {
  auto found = clients.missing(100);
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::string text;
  for (const auto& one : found) {
    text += (text.empty() ? "" : ", ") + one.name + " " + one.host + ":" + std::to_string(one.pid);
  }
  return text;
}

}  // namespace

TEST_SUITE("store/decide/expected_clients") {
  TEST_CASE("an announced client is missing until a client with its pid and host connects") {
    ExpectedClients clients;
    CHECK_FALSE(clients.world_size());
    clients.expect_world(4);
    clients.expect(1, "10.0.0.7", "rank 0", 100);
    clients.expect(1, "10.0.0.7", "rank 1", 101);
    clients.expect(2, "10.0.0.8", "rank 2", 100);
    CHECK(clients.is_missing(100));
    clients.connected("10.0.0.7", 100);
    CHECK(clients.is_missing(100));
    clients.connected("10.0.0.9", 101);
    CHECK(missing(clients) == "rank 1 10.0.0.7:101, rank 2 10.0.0.8:100");
    CHECK(clients.missing_count() == 2);
    CHECK(clients.expected_count() == 3);
    CHECK(clients.world_size() == 4);
    clients.connected("10.0.0.8", 100);
    CHECK_FALSE(clients.is_missing(100));
    CHECK(missing(clients) == "rank 1 10.0.0.7:101");
  }

  TEST_CASE("a worker started again is expected again, in place of the one before") {
    ExpectedClients clients;
    clients.expect(1, "h", "rank 0", 100);
    clients.connected("h", 100);
    clients.expect(1, "h", "rank 0", 200);
    clients.expect(1, "h", "rank 0", 300);
    CHECK(missing(clients) == "rank 0 h:300");
    CHECK_FALSE(clients.is_missing(200));
    CHECK(clients.expected_count() == 1);
  }

  TEST_CASE("what a lost announcer expected is void") {
    ExpectedClients clients;
    clients.expect(1, "h", "rank 0", 100);
    clients.expect(2, "h", "rank 1", 100);
    clients.forget(1);
    clients.forget(1);
    CHECK(missing(clients) == "rank 1 h:100");
    CHECK(clients.expected_count() == 1);
    clients.clear();
    CHECK(clients.expected_count() == 0);
    CHECK(clients.missing_count() == 0);
  }

  TEST_CASE("a stranger's announcements are bounded, in number and in length") {
    ExpectedClients clients;
    for (std::uint32_t i = 0; i < ExpectedClients::kMostExpected + 10; ++i) {
      clients.expect(i % 2, "h", "rank " + std::to_string(i), i);
    }
    CHECK(clients.expected_count() == ExpectedClients::kMostExpected);
    clients.forget(0);
    clients.expect(1, "h", std::string(1000, 'x'), 7);
    clients.connected("h", 7);
    CHECK(clients.expected_count() == ExpectedClients::kMostExpected / 2 + 1);
    CHECK(clients.missing(3).size() == 3);
    clients.expect(1, "h", std::string(1000, 'x'), 8);
    CHECK(clients.is_missing(8));
    CHECK(clients.expected_count() == ExpectedClients::kMostExpected / 2 + 1);
  }
}
