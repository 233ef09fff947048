// SPDX-License-Identifier: BSD-3-Clause
#include "cli/status_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

using namespace ddprun::cli;

namespace {

bool has_line(const Lines& lines, const std::string& line) {
  return std::ranges::find(lines, line) != lines.end();
}

// A page with two nodes of one run.
Json page_with(int more_nodes, int more_runs) {
  Json nodes = Json::array();
  for (int i = 0; i < 2; ++i) {
    nodes.push_back({{"host", "n" + std::to_string(i)},
                     {"state", "training"},
                     {"group_rank", i},
                     {"base_rank", i},
                     {"workers", 1}});
  }
  Json run = {{"run", "job"},
              {"state", "training"},
              {"world_size", 2 + more_nodes},
              {"nodes", std::move(nodes)},
              {"more_nodes", more_nodes}};
  return {
      {"runs", Json::array({std::move(run)})}, {"more_runs", more_runs}, {"ended", Json::array()}};
}

}  // namespace

TEST_SUITE("cli/status_text") {
  TEST_CASE("a page with all runs and nodes says nothing of others") {
    Json page = page_with(0, 0);
    for (const Lines& lines : {status_lines(page, ""), node_lines(page, ""), rank_lines(page, ""),
                               screen(page, "", 200, 100)}) {
      for (const std::string& line : lines)
        CHECK_MESSAGE(line.find(" more") == std::string::npos, line);
    }
    CHECK(status_lines(page, "").front() == "job: training, 2 workers on 2 nodes");
    CHECK(status_lines(page, "other") == Lines{"no run 'other' meets here"});
  }

  TEST_CASE("where the time went is said without what was nothing, and fits a terminal") {
    Json page = page_with(0, 0);
    Json& run = page["runs"][0];
    run["time"] = {{"waiting", 0.0}, {"starting", 1.0}, {"training", 99.0}, {"stopping", 0.04}};
    CHECK(status_lines(page, "")[1] == "  restarts 0 of 0; time: training 99.0 %, starting 1.0 %");
    run["time"] = {{"waiting", 10.0}, {"starting", 10.0}, {"training", 70.0}, {"stopping", 10.0}};
    CHECK(status_lines(page, "")[1] == "  restarts 0 of 0");
    CHECK(status_lines(page, "")[2] ==
          "  time: training 70.0 %, waiting 10.0 %, starting 10.0 %, stopping 10.0 %");
  }

  TEST_CASE("of a run that another host has it is said where it is") {
    Json page = {{"runs", Json::array()},
                 {"ended", Json::array()},
                 {"elsewhere", {{{"run", "job"}, {"at", "b:7"}}}}};
    CHECK(status_lines(page, "") == Lines{"job: goes on at b:7; ask there"});
    CHECK(node_lines(page, "job") == Lines{"job: goes on at b:7; ask there"});
    CHECK(status_lines(page, "other") == Lines{"no run 'other' meets here"});
    CHECK(status_json(page, "")["elsewhere"][0]["at"] == "b:7");
  }

  TEST_CASE("of a run that is over it is said how, as far as that is known") {
    Json over = {{"run", "job"}, {"exit_code", 3}, {"restart_count", 1}, {"ago_s", 5}};
    Json gone = {{"run", "job"},
                 {"exit_code", nullptr},
                 {"restart_count", nullptr},
                 {"ago_s", 5},
                 {"why", "none of its nodes is left"}};
    Json page = {{"runs", Json::array()}, {"ended", Json::array({over, gone})}};
    CHECK(status_lines(page, "job") ==
          Lines{"job: ended 5.0 s ago, exit code 3, after 1 restart",
                "job: ended 5.0 s ago, no exit code: none of its nodes is left"});
  }

  TEST_CASE("of a round that is being stopped it is not said on how many nodes it was") {
    Json page = page_with(0, 0);
    Json& run = page["runs"][0];
    run["state"] = "stopping";
    run["world_size"] = 3;
    run["lost"] = "n2 was stopped by SIGTERM";
    Lines lines = status_lines(page, "");
    CHECK(lines.front() == "job: stopping, 3 workers");
    CHECK(has_line(lines, "  too few nodes since: n2 was stopped by SIGTERM"));
  }

  TEST_CASE("while stacks are taken it is said, and of how many ranks") {
    Json page = page_with(0, 0);
    CHECK_FALSE(has_line(status_lines(page, ""), "  taking stacks of 1 rank"));
    page["runs"][0]["taking_stacks"] = 1;
    CHECK(has_line(status_lines(page, ""), "  taking stacks of 1 rank"));
    page["runs"][0]["taking_stacks"] = 8;
    CHECK(has_line(screen(page, "", 80, 24), "  taking stacks of 8 ranks"));
  }

  TEST_CASE("nodes and runs that are not on the page are counted") {
    Json page = page_with(4, 89);
    for (const Lines& lines : {status_lines(page, ""), node_lines(page, ""), rank_lines(page, ""),
                               screen(page, "", 200, 100)}) {
      CHECK(has_line(lines, "  2 nodes of 6 on this page; 4 more"));
      CHECK(has_line(lines, "1 run of 90 on this page; 89 more"));
    }
    CHECK(status_lines(page, "").front() == "job: training, 6 workers");
    CHECK(!has_line(status_lines(page, "job"), "1 run of 90 on this page; 89 more"));
    CHECK(status_json(page, "")["more_runs"] == 89);
    CHECK(node_json(page, "")[0]["more_nodes"] == 4);
    CHECK(rank_json(page, "")[0]["more_nodes"] == 4);
  }

  TEST_CASE("a run that may be beyond the page is not said to be missing") {
    CHECK(status_lines(page_with(0, 89), "other") ==
          Lines{"no run 'other' is on this page; 89 runs that meet here are not"});
  }

  TEST_CASE(
      "a report begins with who did not come, and a rank that has ended is no more training") {
    Json page = page_with(0, 0);
    Json& run = page["runs"][0];
    run["failures"] = Json::array({Json{{"attempt", 0},
                                        {"rank", 0},
                                        {"node", "n0"},
                                        {"exit_code", 1},
                                        {"suspects", "rank 1 (n1, pid 7) did not come to barrier"},
                                        {"message", "RuntimeError: Timed out"}}});
    std::string first = report_lines(page, "").front();
    CHECK(first.find("attempt 0: rank 1 (n1, pid 7) did not come to barrier; rank 0 on n0 ") !=
          std::string::npos);
    run["nodes"][1]["vitals"] =
        Json::array({Json{{"local_rank", 0}, {"pid", 7}, {"process", "-"}}});
    Lines lines = rank_lines(page, "");
    CHECK(std::ranges::any_of(lines, [](const std::string& line) {
      return line.find("n1") != std::string::npos && line.find("ended") != std::string::npos;
    }));
  }

  TEST_CASE("a rank that falls behind is slow, whatever the kernel does for it at that moment") {
    Json page = page_with(0, 0);
    Json& run = page["runs"][0];
    run["nodes"][1]["vitals"] =
        Json::array({Json{{"local_rank", 0}, {"pid", 7}, {"process", "D"}}});
    auto shows = [&](const std::string& state) {
      Lines lines = rank_lines(page, "");
      return std::ranges::any_of(lines, [&](const std::string& line) {
        return line.find(" n1 ") != std::string::npos && line.find(state) != std::string::npos;
      });
    };
    CHECK(shows("  in D state"));
    CHECK_FALSE(shows("slow"));
    run["slow"] = Json::array({Json{{"rank", 1}, {"host", "n1"}, {"why", "x"}}});
    CHECK(shows("  slow, in D state"));
  }
}
