// SPDX-License-Identifier: BSD-3-Clause
//
// What strangers make up is not kept without end: rounds, nodes that are gone, runs elsewhere.
#include "rendezvous/decide/room.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "rendezvous/decide/runs.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

struct Place {
  runs::State state;
  Now now{.mono = MonoTime(1h)};

  Place() { step(runs::event::Begun{.files = {}, .name = "ddpd@g", .is_daemon = true}); }
  void step(const runs::Event& event) { state = runs::step(std::move(state), event, now).state; }
  void says(const std::string& run, const std::string& node, Request request) {
    step(runs::event::Arrived{{.run = run, .node = node, .request = std::move(request)}});
  }
  const coordinator::State& run() const { return state.runs.at("job"); }
};

// Of a run with two endpoints, from a round at another one.
request::Join back_from(std::uint64_t round) {
  request::Join join{.host = "h", .address = "h", .store_port = 1000};
  join.settings = {.min_nodes = 2, .max_nodes = 4};
  join.settings.endpoints = {{"one", 1}, {"two", 2}};
  join.is_back = true;
  join.was_in_round = true;
  join.run_uuid = "u";
  join.next_round = round + 1;
  join.round_by = "other@" + std::string(200, 'g');
  join.previous_nodes = kMaxCount;
  return join;
}

request::Left left_of(std::uint64_t round) {
  request::Left left{.why = "was lost"};
  left.knows = {.number = round, .by = back_from(round).round_by};
  left.nodes = kMaxCount;
  return left;
}

}  // namespace

TEST_CASE("Room: of rounds that no node is in any more nothing is kept") {
  Place place;
  for (std::uint64_t round = 0; round < 1000; ++round)
    place.says("job", "n." + std::to_string(round), back_from(round));
  REQUIRE(place.run().former.awaited);
  CHECK(place.run().former.awaited->accounted.size() == 1);
  CHECK(place.run().former.awaited->broken.size() == 1);
  CHECK(place.run().former.awaited->round == 999);
}

TEST_CASE("Room: rounds to come, and nodes of a round, are kept up to a number") {
  Place place;
  place.says("job", "n.0", back_from(0));
  for (std::uint64_t round = 1; round < 1000; ++round) place.says("job", "m.0", left_of(round));
  CHECK(place.run().former.awaited->accounted.size() == coordinator::kMostFormerRounds);
  coordinator::State& run = place.state.runs.at("job");
  for (std::size_t i = 0; i < coordinator::kMostGone - 2; ++i)
    run.quorum.gone["g" + std::to_string(i)];
  std::set<std::string>& names = run.former.awaited->accounted[run.former.awaited->id()];
  for (std::size_t i = names_in(*run.former.awaited) + 2; i < coordinator::kMostFormerNames; ++i)
    names.insert("f" + std::to_string(i));
  for (int i = 0; i < 5; ++i) place.says("job", "m" + std::to_string(i) + ".0", left_of(0));
  CHECK(names_in(*place.run().former.awaited) == coordinator::kMostFormerNames);
  CHECK(place.run().quorum.gone.size() == coordinator::kMostGone);
  CHECK(said_bytes(place.run()) > (coordinator::kMostGone + coordinator::kMostFormerNames) * 100);
}

TEST_CASE("Room: what is left of runs without a node counts, and so do last words") {
  Place place;
  request::Left left = left_of(0);
  left.after.resize(kMaxUnsettled, {.id = {.by = std::string(200, 'b')}});
  left.why = std::string(4000, 'w');
  int runs = 0;
  for (; place.state.said_bytes < kMaxSaidBytesOfAll - (1U << 20U) && runs < 1000; ++runs) {
    std::string name = "job" + std::to_string(runs);
    place.says(name, "n.0", back_from(0));
    for (int i = 0; i < 100; ++i) place.says(name, "m" + std::to_string(i) + ".0", left);
    place.says(name, "n.0", request::Left{.why = "left"});
  }
  CHECK(runs < 1000);
  place.now.mono += 2s;
  request::Join large = back_from(0);
  large.died.resize(kMaxDied);
  for (Died& died : large.died)
    died.after.resize(kMaxUnsettled, {.id = {.by = std::string(200, 'b')}});
  for (int i = 0; i < 300; ++i) place.says("last", "l" + std::to_string(i) + ".0", large);
  CHECK(place.state.runs.at("last").nodes.size() < 200);
}

TEST_CASE("Room: of runs that are elsewhere so many are known as there may be") {
  Place place;
  for (std::size_t i = 0; i < runs::kMaxRuns + 10; ++i)
    place.says(
        "job" + std::to_string(i), "x.0",
        request::Knock{.from = {"one", 1}, .to = {"two", 2}, .has_round = true, .formed = 1});
  CHECK(place.state.moved.size() == runs::kMaxRuns);
  place.now.mono += runs::kMovedAge;
  place.step(runs::event::Tick{});
  CHECK(place.state.moved.empty());
}
