// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/quorum.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace ddprun::rendezvous::coordinator;

namespace {

MonoTime at(int seconds) {
  return MonoTime(std::chrono::seconds(seconds));
}

const RoundId kFirst{.number = 3, .by = "a@1"};   // of another coordinator
const RoundId kSecond{.number = 4, .by = "a@1"};  // the same one's next

Present node(std::string_view name, const RoundId& knows, int nodes, int contact = 100) {
  return {.name = name, .knows = knows, .nodes = nodes, .contact = at(contact)};
}

Body own_round(std::uint64_t number, std::set<std::string, std::less<>> names, int formed = 50) {
  return {.id = {.number = number, .by = "self"},
          .nodes = static_cast<int>(names.size()),
          .names = std::move(names),
          .is_own = true,
          .formed_at = at(formed)};
}

bool may(const Quorum& quorum, const std::vector<Present>& present) {
  return basis(quorum, present).has_value();
}

}  // namespace

TEST_CASE("two groups of nodes never both are enough, whatever each knows of nodes that are gone") {
  for (int nodes = 1; nodes <= 12; ++nodes) {
    for (int gone = 0; gone <= nodes; ++gone) {
      // Each side knows a part of those that are gone; at least one knows each of its own.
      for (int known_here = 0; known_here <= gone; ++known_here) {
        for (int known_there = 0; known_there <= gone; ++known_there) {
          int host = enough(nodes, known_here, /*is_own=*/true);
          int other = enough(nodes, known_there, /*is_own=*/false);
          bool is_over = known_here == nodes || known_there == nodes;
          CAPTURE(nodes);
          CAPTURE(known_here);
          CAPTURE(known_there);
          if (!is_over) CHECK(host + other > nodes - gone);
        }
      }
    }
  }
}

TEST_CASE("of two nodes the host may go on alone, the other one only if the host is gone") {
  CHECK(enough(2, 0, true) == 1);
  CHECK(enough(2, 0, false) == 2);
  CHECK(enough(2, 1, false) == 1);
}

TEST_CASE("a run whose host cannot change needs no quorum, nor does one that begins") {
  CHECK(may({}, {node("a", kFirst, 5)}));
  CHECK(may({.self = "self"}, {node("a", {}, 0)}));
}

TEST_CASE("a new coordinator needs more than half of the nodes of one round") {
  Quorum quorum{.self = "self"};
  CHECK_FALSE(may(quorum, {node("b", kFirst, 4), node("c", kFirst, 4)}));
  CHECK(may(quorum, {node("b", kFirst, 4), node("c", kFirst, 4), node("d", kFirst, 4)}));
}

TEST_CASE("nodes that know a later round do not count for the one before") {
  Quorum quorum{.self = "self"};
  CHECK_FALSE(may(quorum, {node("b", kFirst, 4), node("c", kFirst, 4), node("d", kSecond, 3)}));
}

// a published kSecond to b and c, of the five nodes that had kFirst, and d and e never heard of it.
TEST_CASE("nodes of a round that is not settled go on with enough of the round before it only") {
  Quorum quorum{.self = "self"};
  const std::vector<Unsettled> after{{.id = kFirst, .nodes = 5, .was_in = true}};
  Present b = node("b", kSecond, 3);
  Present c = node("c", kSecond, 3);
  b.after = after;
  c.after = after;
  const Present d = node("d", kFirst, 5);
  CHECK_FALSE(may(quorum, {b, c}));
  SUBCASE("the others may go on from the round before") {
    const Present e = node("e", kFirst, 5);
    CHECK_FALSE(may(quorum, {d, e}));
    CHECK(may(quorum, {d, e, node("a", kFirst, 5)}));
  }
  SUBCASE("with one of them there are enough, and the next round comes after both") {
    auto bodies = basis(quorum, std::vector{b, c, d});
    REQUIRE(bodies);
    CHECK(unsettled(*bodies, "d") ==
          std::vector<Unsettled>{{.id = kFirst, .nodes = 5, .was_in = true},
                                 {.id = kSecond, .nodes = 3, .was_in = false}});
  }
  SUBCASE("a node that knows neither does not count") {
    CHECK_FALSE(may(quorum, {b, c, node("x", {}, 0)}));
  }
  SUBCASE("nor does one that was not in the round before") {
    const std::vector<Unsettled> newcomer{{.id = kFirst, .nodes = 5, .was_in = false}};
    Present x = node("x", kSecond, 3);
    x.after = newcomer;
    CHECK_FALSE(may(quorum, {b, c, x}));
  }
  SUBCASE("one that knows another later round does not count for the round before") {
    Present other = node("d", {.number = 4, .by = "d@9"}, 3);
    other.after = after;
    CHECK_FALSE(may(quorum, {b, c, other}));
  }
  SUBCASE("one that is gone counts as gone in both") {
    quorum.gone["a"] = {.knows = kSecond, .nodes = 3, .after = after};
    CHECK_FALSE(may(quorum, {b, c}));
    quorum.gone["d"] = {.knows = kFirst, .nodes = 5};
    CHECK(may(quorum, {b, c}));
  }
  SUBCASE("one of them knows that the round is settled") {
    c.after = {};
    CHECK(may(quorum, {b, c}));
  }
}

TEST_CASE("a host of an earlier round counts for it as half in a later line") {
  Quorum quorum{.self = "self"};
  formed(quorum, {}, own_round(3, {"a", "b", "c", "d"}));
  const RoundId own{.number = 3, .by = "self"};
  const RoundId later{.number = 4, .by = "b@2"};
  const std::vector<Unsettled> after{{.id = own, .nodes = 4, .was_in = true}};
  Present b = node("b", later, 3);
  Present c = node("c", later, 3);
  b.after = after;
  c.after = after;
  auto bodies = basis(quorum, std::vector{b, c});
  REQUIRE(bodies);
  CHECK(bodies->back().id == later);
  CHECK_FALSE(may(quorum, {b, node("a", own, 4)}));
}

TEST_CASE("a node that is back as another incarnation counts once") {
  Quorum quorum{.self = "self"};
  CHECK_FALSE(may(quorum, {node("b", kFirst, 4), node("b", kFirst, 4), node("c", kFirst, 4)}));
}

TEST_CASE("nodes that are gone make the round smaller, if they knew no later one") {
  Quorum quorum{.self = "self"};
  std::vector<Present> present{node("b", kFirst, 4), node("c", kFirst, 4)};
  quorum.gone["a"] = {.knows = kFirst, .nodes = 4};
  CHECK(may(quorum, present));
  quorum.gone["a"] = {.knows = kSecond, .nodes = 4};
  CHECK_FALSE(may(quorum, present));
}

TEST_CASE("new nodes do not begin a run of which a node is known to have gone") {
  Quorum quorum{.self = "self"};
  quorum.gone["a"] = {.knows = kFirst, .nodes = 2};
  CHECK_FALSE(may(quorum, {node("x", {}, 0)}));
  quorum.gone["b"] = {.knows = kFirst, .nodes = 2};
  CHECK(may(quorum, {node("x", {}, 0)}));
}

// A standby that had never been in a round has gone on from one of which all nodes were gone.
TEST_CASE("a round of which all nodes are gone counts only where no other round is known") {
  Quorum quorum{.self = "self"};
  quorum.gone["a"] = {.knows = kFirst, .nodes = 1};
  const std::vector<Present> stranger{node("x", {}, 0)};
  REQUIRE(may(quorum, stranger));
  SUBCASE("such as one of its own") {
    formed(quorum, *basis(quorum, stranger), own_round(0, {"x"}));
    heard_of(quorum, "x", 0);
    CHECK_FALSE(may(quorum, {node("y", {}, 0)}));
    CHECK(may(quorum, stranger));
  }
  SUBCASE("or of a run file") {
    quorum.bodies = {{.id = kSecond, .nodes = 1, .names = {"x"}}};
    CHECK_FALSE(may(quorum, {node("y", {}, 0)}));
  }
  SUBCASE("or that was known to a node here") {
    note_seen(quorum, kSecond, 1);
    CHECK_FALSE(may(quorum, {node("y", {}, 0)}));
  }
  SUBCASE("or to one that is gone, while others had it") {
    quorum.gone["b"] = {.knows = kSecond, .nodes = 2};
    CHECK_FALSE(may(quorum, {node("y", {}, 0)}));
  }
}

TEST_CASE("nor where one was here that knew of a round, until enough of its nodes are") {
  Quorum quorum{.self = "self"};
  note_seen(quorum, {}, 0);
  CHECK(may(quorum, {node("x", {}, 0)}));
  note_seen(quorum, kFirst, 3);
  CHECK_FALSE(may(quorum, {node("x", {}, 0)}));
  auto lack = lacking(quorum, std::vector{node("x", {}, 0)});
  REQUIRE(lack);
  CHECK(lack->round == kFirst);
  CHECK(lack->here == 0);
  CHECK(may(quorum, {node("a", kFirst, 3), node("b", kFirst, 3)}));
}

TEST_CASE(
    "half of the nodes of a coordinator's own round may suffice it, also where it formed a later "
    "one") {
  Quorum quorum{.self = "self"};
  formed(quorum, {}, own_round(3, {"a", "b", "c", "d"}));
  const RoundId own{.number = 3, .by = "self"};
  CHECK_FALSE(may_suffice(quorum, own, 1));
  CHECK(may_suffice(quorum, own, 2));
  CHECK(may_suffice(quorum, {.number = 2, .by = "a@1"}, 2));
  CHECK_FALSE(may_suffice(quorum, {.number = 3, .by = "a@1"}, 2));
  CHECK_FALSE(may_suffice(quorum, {.number = 4, .by = "a@1"}, 4));
}

TEST_CASE("the host of a round needs half of it") {
  Quorum quorum{.self = "self"};
  formed(quorum, {}, own_round(0, {"a", "b", "c", "d"}));
  const RoundId own{.number = 0, .by = "self"};
  CHECK_FALSE(may(quorum, {node("a", own, 4)}));
  CHECK(may(quorum, {node("a", own, 4), node("b", own, 4)}));
  SUBCASE("a node that was told of another one's later round does not count") {
    CHECK_FALSE(may(quorum, {node("a", own, 4), node("b", {.number = 1, .by = "b@2"}, 3)}));
  }
}

TEST_CASE("the round before counts until enough of its nodes have heard of the next") {
  Quorum quorum{.self = "self"};
  const RoundId first{.number = 0, .by = "self"};
  const RoundId second{.number = 1, .by = "self"};
  formed(quorum, {}, own_round(0, {"a", "b", "c", "d", "e"}));
  formed(quorum, quorum.bodies, own_round(1, {"a", "b", "c", "d"}));
  // c, d and e may go on from the first round: nothing here is certain without one of them.
  CHECK_FALSE(may(quorum, {node("a", second, 4), node("b", second, 4)}));
  heard_of(quorum, "a", 1);
  heard_of(quorum, "b", 1);
  CHECK(quorum.bodies.size() == 2);
  heard_of(quorum, "c", 1);
  CHECK(quorum.bodies.size() == 1);
  CHECK(may(quorum, {node("a", second, 4), node("b", second, 4)}));
  CHECK(first < second);
}

TEST_CASE("the contact of a coordinator is that of the last node that it needs") {
  Quorum quorum{.self = "self"};
  const RoundId own{.number = 0, .by = "self"};
  formed(quorum, {}, own_round(0, {"a", "b", "c", "d", "e"}));
  Present host = node("a", own, 5);
  host.contact = MonoTime::max();
  std::vector<Present> present{host, node("b", own, 5, 90), node("c", own, 5, 80),
                               node("d", own, 5, 70)};
  CHECK(heard_at(quorum, present) == at(80));
  SUBCASE("too few") {
    present.resize(2);
    CHECK(heard_at(quorum, present) == std::nullopt);
  }
  SUBCASE("a node knows of the round since it was formed, if no pulse says more") {
    for (Present& each : present) each.contact = MonoTime::min();
    CHECK(heard_at(quorum, present) == at(50));
  }
  SUBCASE("the workers of the round live by its own nodes") {
    present[1].is_member = false;
    CHECK(heard_at(quorum, present) == at(80));
    CHECK(heard_in_round_at(quorum, present) == at(70));
  }
}

TEST_CASE("living workers do not count on a node that was elsewhere before it was gone") {
  Quorum quorum{.self = "self"};
  const RoundId own{.number = 0, .by = "self"};
  formed(quorum, {}, own_round(0, {"a", "b", "c"}));
  const std::vector<Present> present{node("a", own, 3, 90)};
  quorum.gone["b"] = {.knows = own, .nodes = 3};
  CHECK(heard_in_round_at(quorum, present) == at(90));
  quorum.gone["b"].was_elsewhere = true;  // and may have been in a round with c there
  CHECK(heard_in_round_at(quorum, present) == std::nullopt);
  CHECK(heard_at(quorum, present) == at(90));  // a new round waits for the leases
}
