// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/ranks.h"

#include <doctest/doctest.h>

using namespace ddprun::rendezvous;

TEST_SUITE("rendezvous/decide/ranks") {
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

  TEST_CASE("host names compare as people count") {
    CHECK(comes_before_naturally("node2", "node10"));
    CHECK_FALSE(comes_before_naturally("node10", "node2"));
    CHECK(comes_before_naturally("a1b2", "a1b10"));
    CHECK(comes_before_naturally("node", "node0"));
    CHECK(comes_before_naturally("node9", "rack1"));
    CHECK(comes_before_naturally("n99999999999999999998", "n99999999999999999999"));
    CHECK_FALSE(comes_before_naturally("node1", "node1"));
    CHECK_FALSE(comes_before_naturally("node01", "node1"));
  }

  using Seats = std::vector<std::size_t>;

  TEST_CASE("new nodes sit in the natural order of their names, then of their arrival") {
    std::vector<Claim> claims = {{.host = "node10", .arrival = 0},
                                 {.host = "node2", .arrival = 1},
                                 {.host = "node2", .arrival = 2},
                                 {.host = "node1", .arrival = 3}};
    CHECK(seat(claims) == Seats{3, 1, 2, 0});
  }

  TEST_CASE("a wanted rank is given, and the others fill what is left") {
    std::vector<Claim> claims = {{.host = "a", .arrival = 0},
                                 {.wanted = 0, .host = "z", .arrival = 1},
                                 {.host = "b", .arrival = 2}};
    CHECK(seat(claims) == Seats{1, 0, 2});
  }

  TEST_CASE("survivors keep their places where there still are such places") {
    // Ranks 1, 2 and 3 of four survive: 3 has no place among three, and takes the free one.
    std::vector<Claim> claims = {{.previous = 3, .host = "a", .arrival = 0},
                                 {.previous = 1, .host = "b", .arrival = 1},
                                 {.previous = 2, .host = "c", .arrival = 2}};
    CHECK(seat(claims) == Seats{0, 1, 2});
    // A newcomer takes the place of the one that was lost.
    claims = {{.previous = 0, .host = "z", .arrival = 0},
              {.host = "a", .arrival = 1},
              {.previous = 2, .host = "b", .arrival = 2}};
    CHECK(seat(claims) == Seats{0, 1, 2});
  }

  TEST_CASE("of two claims to one place the earlier arrival gets it") {
    std::vector<Claim> claims = {{.previous = 0, .host = "a", .arrival = 5},
                                 {.previous = 0, .host = "b", .arrival = 4}};
    CHECK(seat(claims) == Seats{1, 0});
  }
}
