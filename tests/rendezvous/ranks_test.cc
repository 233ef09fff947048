// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/ranks.h"

#include <doctest/doctest.h>

using namespace ddprun::rendezvous;

TEST_SUITE("rendezvous/ranks") {
  TEST_CASE("one node has the whole world") {
    Participant self{.local_world_size = 4};
    auto assignments = assign_ranks({&self, 1});
    REQUIRE(assignments.size() == 1);
    CHECK(assignments[0].base_rank == 0);
    CHECK(assignments[0].world_size == 4);
    CHECK(assignments[0].role_world_size == 4);
    CHECK(assignments[0].group_world_size == 1);
  }

  TEST_CASE("ranks are dense over nodes of different size, and roles are counted apart") {
    std::vector<Participant> nodes = {{2, "trainer"}, {1, "reader"}, {3, "trainer"}};
    auto assignments = assign_ranks(nodes);
    CHECK(assignments[0].base_rank == 0);
    CHECK(assignments[1].base_rank == 2);
    CHECK(assignments[2].base_rank == 3);
    CHECK(assignments[2].world_size == 6);
    CHECK(assignments[2].group_rank == 2);
    CHECK(assignments[0].role_world_size == 5);
    CHECK(assignments[1].role_base_rank == 0);
    CHECK(assignments[1].role_world_size == 1);
    CHECK(assignments[2].role_base_rank == 2);
  }
}
