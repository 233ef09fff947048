// SPDX-License-Identifier: BSD-3-Clause
//
// The keyspace against a model of it that is too simple to be wrong.  Random requests of a few
// clients about a few names, from a seed, must have the same answers from both, and leave nothing
// behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <string>

#include "tests/support/keyspace_model.h"

TEST_SUITE("store/keyspace/model") {
  TEST_CASE("random programs have the same answers from the keyspace and from a simple model") {
    std::uint32_t seed = std::random_device{}();
    std::cout << "seed " << seed << std::endl;
    std::size_t most_keys = 0;
    for (std::uint32_t program = 0; program < 100; ++program) {
      CAPTURE(seed + program);
      std::mt19937 random(seed + program);
      ddprun::test::KeyspaceProgram played([&](std::size_t count) { return random() % count; });
      for (int i = 0; i < 500; ++i) {
        CAPTURE(i);
        REQUIRE(played.step() == "");
      }
      REQUIRE(played.finish() == "");
      most_keys = std::max(most_keys, played.most_keys());
    }
    CHECK(most_keys > 600);  // so the table of names has split
  }
}
