// SPDX-License-Identifier: BSD-3-Clause
//
// Many that wait for the same are one line, which says who has not come.
#include "cli/wait_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

using namespace ddprun::cli;

namespace {

// A run with so many workers, eight on a node; the pid of a rank is 1000 + rank.
Json page_with(int workers) {
  Json nodes = Json::array();
  for (int base = 0; base < workers; base += 8) {
    Json vitals = Json::array();
    for (int i = 0; i < std::min(8, workers - base); ++i)
      vitals.push_back({{"local_rank", i}, {"process", "S"}, {"pid", 1000 + base + i}});
    nodes.push_back({{"host", "node" + std::to_string(base / 8)},
                     {"state", "training"},
                     {"base_rank", base},
                     {"vitals", std::move(vitals)}});
  }
  Json run = {{"run", "job"}, {"world_size", workers}, {"nodes", std::move(nodes)}};
  return {{"runs", Json::array({std::move(run)})}};
}

Json& worker_of(Json& page, int rank) {
  return page["runs"][0]["nodes"][rank / 8]["vitals"][rank % 8];
}

Json store_with(Json missing, Json waiting) {
  auto count = missing.size();
  return {{"expected", {{"missing", std::move(missing)}, {"missing_count", count}}},
          {"waiting", std::move(waiting)}};
}

Json wait_of(int rank, const char* key, int ms) {
  return {{"peer", "10.0.0.7:" + std::to_string(40000 + rank)},
          {"pid", 1000 + rank},
          {"namespace", ""},
          {"waiting_ms", ms},
          {"missing_count", 1},
          {"missing", {key}}};
}

Json missing_of(int rank) {
  return {{"name", "rank " + std::to_string(rank)}, {"host", "10.0.0.7"}, {"pid", 1000 + rank}};
}

}  // namespace

TEST_SUITE("cli/wait_text") {
  TEST_CASE("all ranks that wait for one key are one line, with the one that has not come") {
    Json waiting = Json::array();
    for (int rank = 38; rank >= 0; --rank) waiting.push_back(wait_of(rank, "key", 10'000 + rank));
    CHECK(store_wait_lines(store_with(Json::array(), waiting), page_with(40), "job") ==
          Lines{"ranks 0-38: 'key' for 10 s; not come: rank 39 (node4, pid 1039)"});
  }

  TEST_CASE("who has not come is not guessed") {
    Json few = Json::array({wait_of(0, "a", 5000), wait_of(1, "b", 7000)});
    CHECK(store_wait_lines(store_with(Json::array(), few), page_with(8), "job") ==
          Lines{"rank 0: 'a' for 5.0 s", "rank 1: 'b' for 7.0 s"});

    Json most = Json::array({wait_of(0, "a", 5000), wait_of(1, "a", 5000), wait_of(2, "a", 5000)});
    Json page = page_with(4);
    page["runs"][0]["world_size"] = 5;  // of one nothing is known
    CHECK(store_wait_lines(store_with(Json::array(), most), page, "job") ==
          Lines{"ranks 0-2: 'a' for 5.0 s"});
    Json cut = store_with(Json::array(), most);
    cut["waiting_count"] = 4;  // one more waits
    CHECK(store_wait_lines(cut, page_with(4), "job") ==
          Lines{"ranks 0-2: 'a' for 5.0 s", "1 other client waits"});
    CHECK(store_wait_lines(store_with(Json::array(), most), Json(), "job")[0].starts_with(
        "10.0.0.7:40000 (pid 1000), 10.0.0.7:40001 (pid 1001), "));
  }

  TEST_CASE("of a wait for many keys the first are named") {
    Json wait = wait_of(1, "a", 5000);
    wait["missing"].push_back("b");
    wait["missing_count"] = 7;
    CHECK(store_wait_lines(store_with(Json::array(), Json::array({wait})), page_with(8), "job") ==
          Lines{"rank 1: 'a', 'b' and 5 other keys for 5.0 s"});
  }

  TEST_CASE("agents that wait for their commands are no workers") {
    Json wait = wait_of(1, "ddprun/node/a", 5000);
    wait["namespace"] = "ddprun";
    CHECK(
        store_wait_lines(store_with(Json::array(), Json::array({wait})), page_with(8), "").empty());
  }

  TEST_CASE("a worker that has ended is not said to be on its way") {
    Json page = page_with(8);
    for (int rank : {2, 3, 4}) worker_of(page, rank)["process"] = "-";
    Json killed = {{"rank", 4}, {"pid", 1004}, {"exit_code", 137}, {"signal", "SIGKILL"}};
    Json ended = {{"rank", 3}, {"pid", 1003}, {"exit_code", 7}, {"signal", nullptr}};
    page["runs"][0]["failures"] = Json::array({killed, ended});
    Json store = store_with(
        Json::array({missing_of(10), missing_of(1), missing_of(2), missing_of(3), missing_of(4)}),
        Json::array());
    CHECK(store_wait_lines(store, page, "job") ==
          Lines{"rank 2 (pid 1002 on 10.0.0.7) has ended and never connected",
                "rank 4 (pid 1004 on 10.0.0.7) has ended by SIGKILL and never connected",
                "rank 3 (pid 1003 on 10.0.0.7) has ended with exit code 7 and never connected",
                "rank 1 (pid 1001 on 10.0.0.7) has not connected",
                "rank 10 (pid 1010 on 10.0.0.7) has not connected"});

    Json waiting = Json::array();
    for (int rank : {0, 1, 4, 5, 6, 7}) waiting.push_back(wait_of(rank, "key", 3000));
    CHECK(store_wait_lines(store_with(Json::array(), waiting), page, "job") ==
          Lines{"ranks 0-1, 4-7: 'key' for 3.0 s; not come: rank 2 (node0, pid 1002), which has "
                "ended; rank 3 (node0, pid 1003), which has ended with exit code 7"});
  }

  TEST_CASE("a worker of a node whose workers have all succeeded has ended with exit code 0") {
    Json page = page_with(1);
    page["runs"][0]["nodes"][0]["state"] = "succeeded";
    worker_of(page, 0)["process"] = "-";
    CHECK(store_wait_lines(store_with(Json::array({missing_of(0)}), Json::array()), page, "job") ==
          Lines{"rank 0 (pid 1000 on 10.0.0.7) has ended with exit code 0 and never connected"});
  }

  TEST_CASE("many that have not connected are one line") {
    Json missing = Json::array();
    for (int rank = 39; rank > 3; --rank) missing.push_back(missing_of(rank));
    Json store = store_with(missing, Json::array());
    store["expected"]["missing_count"] = 50;
    CHECK(store_wait_lines(store, page_with(40), "job") ==
          Lines{"ranks 4-39 have not connected", "14 more have not connected"});
  }
}
