// SPDX-License-Identifier: BSD-3-Clause
#include "agent/report/events.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;
using nlohmann::json;

TEST_SUITE("agent/report/events") {
  const EventContext context{.run_id = "r1",
                             .role = "trainer",
                             .hostname = "node7",
                             .rdzv_backend = "static",
                             .entry_point = "train.py",
                             .group_rank = 2,
                             .group_world_size = 4,
                             .role_world_size = 8,
                             .restart_count = 1};

  TEST_CASE("an agent's event has torchelastic's fields, and null where there is nothing") {
    std::string line = to_event_line(context, {.state = "RENDEZVOUS",
                                               .duration = 1500us,
                                               .total_run_time = 3s,
                                               .at = WallTime(1763733600123ms)});
    REQUIRE(line.ends_with("}\n"));
    json event = json::parse(line);
    CHECK(event["name"] == "torchelastic.worker.status.RENDEZVOUS");
    CHECK(event["source"] == "AGENT");
    CHECK(event["timestamp"] == 1763733600123);
    CHECK(event["metadata"] ==
          json{{"run_id", "r1"},
               {"global_rank", nullptr},
               {"group_rank", 2},
               {"worker_id", nullptr},
               {"role", "trainer"},
               {"hostname", "node7"},
               {"state", "RENDEZVOUS"},
               {"total_run_time", 3},
               {"rdzv_backend", "static"},
               {"raw_error", nullptr},
               {"metadata", R"({"group_world_size":4,"entry_point":"train.py"})"},
               {"agent_restarts", 1},
               {"duration_ms", 1.5}});
  }

  TEST_CASE("the entry point is the script") {
    CHECK(entry_point({"/usr/bin/python3", "-u", "train.py", "-x"}) == "train.py");
    CHECK(entry_point({"python3", "-u", "-m", "pkg.train"}) == "pkg.train");
    CHECK(entry_point({"/bin/echo", "a"}) == "/bin/echo");
    CHECK(entry_point({}) == "");
  }

  TEST_CASE("a worker's event tells who and how it ended") {
    json event = json::parse(to_event_line(
        context,
        {.state = "FAILED",
         .worker =
             EventWorker{.rank = 5, .local_rank = 1, .role_rank = 3, .pid = 4211, .exit_code = -9},
         .raw_error = "bad \xff byte"}));
    CHECK(event["source"] == "WORKER");
    CHECK(event["metadata"]["global_rank"] == 5);
    CHECK(event["metadata"]["worker_id"] == "4211");
    json error = json::parse(event["metadata"]["raw_error"].get<std::string>());
    CHECK(error["message"].get<std::string>().starts_with("bad "));
    CHECK(event["metadata"]["duration_ms"].is_null());
    json inner = json::parse(event["metadata"]["metadata"].get<std::string>());
    CHECK(inner["local_rank"] == json::array({1}));
    CHECK(inner["role_rank"] == json::array({3}));
    CHECK(inner["role_world_size"] == json::array({8}));
    CHECK(inner["exit_code"] == json::array({-9}));
    CHECK(inner["worker_pid"] == json::array({4211}));
  }
}
