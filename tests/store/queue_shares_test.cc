// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/queue_shares.h"

#include <doctest/doctest.h>

namespace ddprun::store {
namespace {

// How many of `count` items may be pushed.
std::size_t taken(QueueShares& shares, ClientId client, const std::string& host,
                  std::size_t count) {
  std::size_t taken = 0;
  for (std::size_t i = 0; i < count; ++i) taken += shares.take("q", client, host) ? 1 : 0;
  return taken;
}

TEST_SUITE("store/queue_shares") {
  TEST_CASE("a client has its share until the queue is empty") {
    QueueShares shares;
    shares.watch("q");
    CHECK(taken(shares, 1, "h", 1000) == QueueShares::kOfClient);
    CHECK(taken(shares, 2, "h", 1) == 1);
    shares.renew();
    CHECK(taken(shares, 1, "h", 1000) == QueueShares::kOfClient);
  }

  TEST_CASE("many clients of one address share, and those of another have theirs") {
    QueueShares shares;
    shares.watch("q");
    std::size_t of_one = 0;
    for (ClientId client = 1; client <= 1000; ++client) of_one += taken(shares, client, "h", 100);
    CHECK(of_one == QueueShares::kOfHost);
    CHECK(taken(shares, 2000, "other", 1) == 1);
  }

  TEST_CASE("only one queue is watched, and none before it is known") {
    QueueShares shares;
    CHECK(taken(shares, 1, "h", 100) == 100);
    shares.watch("other");
    CHECK(taken(shares, 1, "h", 100) == 100);
    shares.watch("q");
    CHECK(taken(shares, 1, "h", 100) == QueueShares::kOfClient);
    shares.watch("p");
    shares.watch("q");
    CHECK(taken(shares, 1, "h", 1) == 1);
  }
}

}  // namespace
}  // namespace ddprun::store
