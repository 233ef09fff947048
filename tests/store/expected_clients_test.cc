// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/expected_clients.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>

using ddprun::MonoTime;
using ddprun::store::Budget;
using ddprun::store::ClientId;
using ddprun::store::ExpectedClients;
using ddprun::store::Usage;

namespace {

constexpr MonoTime kNow{std::chrono::seconds(100)};

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

// Announces "rank 0" and so on, all of one process.
void announce(ExpectedClients& clients, ClientId announcer, std::size_t count, std::uint32_t pid) {
  for (std::size_t i = 0; i < count; ++i) {
    clients.expect(announcer, "h", "rank " + std::to_string(i), pid);
  }
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
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
    clients.connected("10.0.0.7", 100, kNow);
    CHECK(clients.is_missing(100));
    clients.connected("10.0.0.9", 101, kNow);
    CHECK(missing(clients) == "rank 1 10.0.0.7:101, rank 2 10.0.0.8:100");
    CHECK(clients.missing_count() == 2);
    CHECK(clients.expected_count() == 3);
    CHECK(clients.world_size() == 4);
    clients.connected("10.0.0.8", 100, kNow);
    CHECK_FALSE(clients.is_missing(100));
    CHECK(missing(clients) == "rank 1 10.0.0.7:101");
  }

  TEST_CASE("a worker started again is expected again, in place of the one before") {
    ExpectedClients clients;
    clients.expect(1, "h", "rank 0", 100);
    clients.connected("h", 100, kNow);
    clients.expect(1, "h", "rank 0", 200);
    clients.expect(1, "h", "rank 0", 300);
    CHECK(missing(clients) == "rank 0 h:300");
    CHECK_FALSE(clients.is_missing(200));
    CHECK(clients.expected_count() == 1);
  }

  TEST_CASE("the world has connected when its last client has") {
    ExpectedClients clients;
    CHECK_FALSE(clients.all_connected_at());
    clients.expect_world(2);
    clients.expect(1, "h", "rank 0", 100);
    clients.connected("h", 100, kNow + std::chrono::seconds(5));
    CHECK_FALSE(clients.all_connected_at());  // rank 1 is not even announced
    clients.expect(1, "h", "rank 1", 101);
    CHECK_FALSE(clients.all_connected_at());
    clients.connected("h", 101, kNow);  // it had, before it was announced
    CHECK(clients.all_connected_at() == kNow + std::chrono::seconds(5));
    clients.clear();
    CHECK_FALSE(clients.all_connected_at());
    clients.expect_world(1);
    clients.expect(1, "h", "rank 0", 102);
    clients.connected("h", 102, kNow);
    CHECK(clients.all_connected_at() == kNow);
    clients.forget(1);
    CHECK_FALSE(clients.all_connected_at());
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

  TEST_CASE("a process that is announced again after it has connected is missing again") {
    ExpectedClients clients;
    clients.expect(1, "h", "rank 0", 100);
    clients.expect(1, "h", "rank 1", 100);
    clients.connected("h", 100, kNow);
    CHECK(clients.missing_count() == 0);
    clients.expect(1, "h", "rank 1", 100);
    CHECK(missing(clients) == "rank 1 h:100");
    clients.expect(2, "h", "rank 2", 100);
    CHECK(clients.missing_count() == 2);
    clients.forget(1);
    CHECK(missing(clients) == "rank 2 h:100");
    clients.connected("h", 100, kNow);
    CHECK(clients.missing_count() == 0);
    clients.forget(2);
    CHECK(clients.expected_count() == 0);
  }

  TEST_CASE("announcements are bounded, in number and in length") {
    constexpr std::size_t kOne = ExpectedClients::kMostOfOne;
    ExpectedClients clients;
    announce(clients, 0, kOne + 10, 7);
    CHECK(clients.expected_count() == kOne);
    clients.expect(0, "h", "rank 0", 9);  // a replacement takes no room
    CHECK(clients.is_missing(9));
    std::uint32_t announcer = 1;
    for (; announcer <= ExpectedClients::kMostExpected / kOne; ++announcer) {
      announce(clients, announcer, kOne, 7);
    }
    CHECK(clients.expected_count() == ExpectedClients::kMostExpected);
    CHECK(clients.missing_count() == ExpectedClients::kMostExpected);
    CHECK(clients.missing(3).size() == 3);
    clients.forget(0);
    clients.expect(1, "h", "one more", 8);
    CHECK_FALSE(clients.is_missing(8));
    clients.expect(announcer, "h", std::string(1000, 'x'), 8);
    CHECK(clients.is_missing(8));
    clients.connected("h", 8, kNow);
    clients.expect(announcer, "h", std::string(1000, 'x'), 10);
    CHECK(clients.is_missing(10));
    CHECK(clients.missing(ExpectedClients::kMostExpected).back().name.size() ==
          ExpectedClients::kMostNameBytes);
  }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  TEST_CASE("the rest of a long name takes no memory") {
    constexpr std::size_t kCount = 4000;
    const std::string rest(8000, 'x');
    ExpectedClients clients;
    std::size_t before = ::mallinfo2().uordblks;
    for (std::size_t i = 0; i < kCount; ++i)
      clients.expect(1, "h", std::to_string(i) + rest, static_cast<std::uint32_t>(i));
    std::size_t taken = ::mallinfo2().uordblks - before;
    REQUIRE(clients.expected_count() == kCount);
    CHECK(taken > 0);
    CHECK(taken < 2 * clients.bytes());
  }
#endif

  TEST_CASE("announcements take room, and none are made where there is none") {
    Usage shared;
    ExpectedClients clients(Budget({.max_bytes = 10'000}, &shared));
    announce(clients, 1, 1000, 7);
    std::size_t count = clients.expected_count();
    CHECK(count > 10);
    CHECK(count < 30);
    CHECK(shared.bytes > 9'000);
    CHECK(shared.bytes <= 10'000);
    CHECK(clients.bytes() == shared.bytes);
    std::size_t full = shared.bytes;
    clients.expect(1, "h", "rank 0", 8);
    CHECK(shared.bytes == full);
    CHECK(clients.is_missing(8));
    clients.forget(1);
    CHECK(shared.bytes == 0);
    announce(clients, 2, count, 7);
    CHECK(clients.expected_count() == count);
    clients.clear();
    CHECK(shared.bytes == 0);
    CHECK(clients.missing(10).empty());
  }

  // Where each looks at all of its process id they take well over a minute.
  TEST_CASE("100,000 announcements of one process id cost no more than others") {
    constexpr std::size_t kCount = 100'000;
    constexpr std::uint32_t kAnnouncers = kCount / 4000;
    ExpectedClients clients;
    double start = processor_seconds();
    auto announce_all = [&] {
      for (std::uint32_t i = 0; i < kAnnouncers; ++i) announce(clients, i, 4000, 7);
      REQUIRE(clients.missing_count() == kCount);
    };
    announce_all();
    announce_all();  // again, in place of those before
    for (int i = 0; i < 1000; ++i) {
      clients.connected("another", 7, kNow);
      REQUIRE(clients.is_missing(7));
      REQUIRE(clients.missing(10).size() == 10);
    }
    clients.connected("h", 7, kNow);
    REQUIRE(clients.missing_count() == 0);
    announce_all();
    for (std::uint32_t i = 0; i < kAnnouncers; ++i) clients.forget(i);
    CHECK(clients.expected_count() == 0);
    double took = processor_seconds() - start;
    MESSAGE(took << " s");
    CHECK(took < 1.5);
  }
}
