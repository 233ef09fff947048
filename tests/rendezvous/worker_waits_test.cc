// SPDX-License-Identifier: BSD-3-Clause
//
// What the node of the workers' store says of it, and what the host of the run makes of that.
#include "rendezvous/decide/worker_waits.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

// A run in round 4, whose node "b" has the store of the workers.
struct Training {
  coordinator::State run;
  std::map<std::string, std::string> said;

  Training() {
    run.phase = coordinator::Phase::Running;
    run.round = 4;
    for (int rank : {0, 1}) {
      coordinator::Node& node = run.nodes[rank == 0 ? "b" : "a"];
      node.is_member = true;
      node.round = command::Round{.number = 4, .ranks = {.group_rank = rank}};
    }
  }
  Json waits() const {
    return worker_waits(run, [this](const std::string& node) {
      auto found = said.find(node);
      return found == said.end() ? std::string() : found->second;
    });
  }
};

store::JoinProgress missing(std::size_t count) {
  store::JoinProgress progress;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 1000); ++i) {
    progress.missing.push_back({.name = "rank " + std::to_string(i),
                                .host = "10.0.0.7",
                                .pid = static_cast<std::uint32_t>(100 + i)});
  }
  progress.missing_count = count;
  return progress;
}

store::Waiter waiter(Duration since, std::string name, std::optional<std::uint32_t> pid = 17) {
  return {.peer = "10.0.0.8:40112",
          .pid = pid,
          .missing = {std::move(name)},
          .missing_count = 1,
          .since = since};
}

}  // namespace

TEST_SUITE("worker_waits") {
  TEST_CASE("who has not connected, and who waits for what, as the node says that has the store") {
    Training place;
    place.said["b"] = encode_waits(4, missing(1), {waiter(7500ms, "0//cpu//0/3")});
    Json waits = place.waits();
    CHECK(waits["expected"]["missing_count"] == 1);
    CHECK(waits["expected"]["missing"][0] ==
          Json({{"name", "rank 0"}, {"host", "10.0.0.7"}, {"pid", 100}}));
    CHECK(waits["waiting"][0] == Json({{"peer", "10.0.0.8:40112"},
                                       {"pid", 17},
                                       {"namespace", ""},
                                       {"waiting_ms", 7500},
                                       {"missing_count", 1},
                                       {"missing", {"0//cpu//0/3"}}}));
  }

  TEST_CASE("a client whose process is not known has none") {
    Training place;
    place.said["b"] = encode_waits(4, missing(0), {waiter(1s, "key", std::nullopt)});
    CHECK(place.waits()["waiting"][0]["pid"].is_null());
  }

  TEST_CASE("of another node, of another round and of a run that does not train nothing is shown") {
    Training place;
    place.said["a"] = encode_waits(4, missing(1), {});
    CHECK(place.waits().is_null());
    place.said["b"] = encode_waits(3, missing(1), {});
    CHECK(place.waits().is_null());
    place.said["b"] = encode_waits(4, missing(1), {});
    CHECK(place.waits().is_object());
    place.run.phase = coordinator::Phase::Stopping;
    CHECK(place.waits().is_null());
  }

  TEST_CASE("of very many the longest are said, and how many there are") {
    Training place;
    std::vector<store::Waiter> waiters;
    for (int i = 0; i < 1000; ++i)
      waiters.push_back(waiter(std::chrono::seconds(i), std::string(5000, 'k')));
    std::string text = encode_waits(4, missing(8000), waiters);
    CHECK(text.size() <= kMaxWaitsBytes);
    place.said["b"] = text;
    Json waits = place.waits();
    CHECK(waits["expected"]["missing_count"] == 8000);
    CHECK(waits["expected"]["missing"].size() == kMaxSaidWorkers);
    CHECK(waits["waiting"].size() > 64);
    CHECK(waits["waiting_count"] == 1000);
    CHECK(waits["waiting"][0]["waiting_ms"] == 999'000);
    CHECK(waits["waiting"][0]["missing"][0].get<std::string>().size() <=
          kMaxWaitNameBytes + 3);  // "..."
  }

  TEST_CASE("of 256 ranks that wait for one key each is said") {
    Training place;
    std::vector<store::Waiter> waiters(256, waiter(7s, "/default_pg/0//cpu//0/255"));
    place.said["b"] = encode_waits(4, missing(1), waiters);
    CHECK(place.waits()["waiting"].size() == 256);
    CHECK(place.waits()["waiting_count"] == 256);
  }

  TEST_CASE("what a stranger may have written is quoted, or not shown") {
    Training place;
    for (const char* text :
         {"", "{", "[]", "{}", R"({"round": 4})",
          R"({"round": 4, "missing_count": -1, "missing": [], "waiting": []})",
          R"({"round": 4, "missing_count": 1, "missing": [7], "waiting": []})"}) {
      CAPTURE(text);
      place.said["b"] = text;
      CHECK(place.waits().is_null());
    }
    place.said["b"] = std::string(kMaxWaitsBytes + 1, ' ');
    CHECK(place.waits().is_null());
    place.said["b"] = encode_waits(4, missing(0), {waiter(1s, "a\x1b[2J\nb")});
    std::string shown = place.waits()["waiting"][0]["missing"][0];
    CHECK(shown.find('\x1b') == std::string::npos);
    CHECK(shown.find('\n') == std::string::npos);
  }
}
