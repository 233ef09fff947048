// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/crowd.h"

#include <doctest/doctest.h>

using namespace ddprun::store;

TEST_SUITE("store/decide/crowd") {
  TEST_CASE("of the address that has most the last one is named, if it has more than its share") {
    Crowd crowd;
    CHECK_FALSE(crowd.last_beyond(0).has_value());
    crowd.add("10.0.0.1", 1);
    crowd.add("10.0.0.2", 2);
    crowd.add("10.0.0.2", 3);
    crowd.add("10.0.0.1", 4);
    crowd.add("10.0.0.2", 5);
    CHECK(crowd.last_beyond(2) == 5);
    CHECK_FALSE(crowd.last_beyond(3).has_value());
    crowd.remove("10.0.0.2", 5);
    crowd.remove("10.0.0.2", 2);
    CHECK(crowd.last_beyond(1) == 4);
    crowd.remove("10.0.0.1", 4);
    CHECK_FALSE(crowd.last_beyond(1).has_value());
  }

  TEST_CASE("who has gone is not counted any more") {
    Crowd crowd;
    for (ClientId client = 1; client <= 1000; ++client)
      crowd.add("10.0.0." + std::to_string(client % 7), client);
    for (ClientId client = 1; client <= 1000; ++client)
      crowd.remove("10.0.0." + std::to_string(client % 7), client);
    crowd.remove("10.0.0.9", 1);
    CHECK_FALSE(crowd.last_beyond(0).has_value());
  }
}
