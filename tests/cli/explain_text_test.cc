// SPDX-License-Identifier: BSD-3-Clause
#include "cli/explain_text.h"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <time.h>

#include <nlohmann/json.hpp>

using namespace ddprun::cli;

namespace {

Json round_at(double time, int number) {
  return {{"what", "round"}, {"time", time}, {"round", number}, {"nodes", 2}, {"workers", 4}};
}
Json stop_at(double time, int number, const char* cause, const char* why) {
  return {{"what", "stop"}, {"time", time}, {"round", number}, {"cause", cause}, {"why", why}};
}
Json event_at(double time, const char* what, const char* host, const char* text) {
  return {{"what", what}, {"time", time}, {"host", host}, {"text", text}};
}

Json run_of(Json history, Json events = Json::array(), Json failures = Json::array()) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  return {{"run", "job"},
          {"state", "training"},
          {"in_state_s", 5},
          {"restart_count", 1},
          {"max_restarts", 3},
          {"waiting_for", nullptr},
          {"history", std::move(history)},
          {"events", std::move(events)},
          {"failures", std::move(failures)}};
}

}  // namespace

TEST_SUITE("cli/explain_text") {
  TEST_CASE("nothing has happened yet") {
    Json waiting = run_of(Json::array());
    waiting["state"] = "waiting";
    waiting["waiting_for"] = "waiting for nodes: 1 of 2 joined (a)";
    CHECK(explain_lines(waiting) == Lines{"job: waiting for 5.0 s, restart 1 of 3",
                                          "no round has begun yet",
                                          "since then: waiting for nodes: 1 of 2 joined (a)"});
    CHECK(explain_lines(run_of({round_at(3600, 0)}))[1] ==
          "nothing has stopped it yet: round 0 began at 01:00:00.000, with 4 workers on 2 nodes");
    CHECK(explain_lines(run_of({round_at(3600, 0)}, {event_at(3500, "took_over", "", "x")}))[1] ==
          "nothing has stopped it since this host has it: round 0 began at 01:00:00.000, with 4 "
          "workers on 2 nodes");
    CHECK(explain_lines(Json(nullptr)).size() == 2);
  }

  TEST_CASE("a worker failed") {
    Json failure = {{"rank", 1}, {"node", "a"}, {"exit_code", 7}, {"log_path", "/logs/1"}};
    Json run =
        run_of({round_at(3600, 0), stop_at(3690.5, 0, "failed", "rank 1 on a exited with code 7"),
                round_at(3692.5, 1)},
               {event_at(10, "joined", "a", "joined"),
                event_at(3690.4, "failed", "a", "reported: rank 1 exited with code 7")},
               {failure});
    CHECK(
        explain_lines(run) ==
        Lines{"job: training for 5.0 s, restart 1 of 3",
              "round 0 was stopped at 01:01:30.500, after 1 min 31 s: a worker failed, which costs "
              "one restart",
              "why: rank 1 on a exited with code 7", "its logs: /logs/1",
              "what the host heard from the nodes:",
              "  01:01:30.400  a reported: rank 1 exited with code 7",
              "round 1 began 2.0 s later, with 4 workers on 2 nodes"});
    Json json = explain_json(run);
    CHECK(json["stop"]["cause"] == "failed");
    CHECK(json["next"]["round"] == 1);
    CHECK(json["events"].size() == 1);
    CHECK(json["failure"]["rank"] == 1);
  }

  TEST_CASE("a wait that was over names the suspects") {
    Json failure = {{"rank", 0}, {"suspects", "rank 1 (b, pid 3) did not come to all_reduce"}};
    Lines lines = explain_lines(run_of({round_at(1, 0), stop_at(2, 0, "failed", "rank 0 exited")},
                                       Json::array(), {failure}));
    CHECK(lines[2] == "why: rank 1 (b, pid 3) did not come to all_reduce");
  }

  TEST_CASE("a node was lost, and its failure of before is not the reason") {
    Json run = run_of({round_at(1, 0), stop_at(2, 0, "failed", "x"), round_at(3, 1),
                       stop_at(4, 1, "lost", "b was lost (nothing heard for 5 s)")},
                      {event_at(4, "lost", "b", "was lost (nothing heard for 5 s)")},
                      {Json{{"rank", 1}, {"log_path", "/logs/1"}}});
    run["state"] = "waiting";
    run["waiting_for"] = "waiting for nodes: 1 of 2 joined";
    Lines lines = explain_lines(run);
    CHECK(lines[1].ends_with("a node was lost, which costs no restart"));
    run["history"][3]["cause"] = "left";
    CHECK(explain_lines(run)[1].ends_with(
        "a node was told to stop and left, which costs no restart"));
    CHECK(lines[2] == "why: b was lost (nothing heard for 5 s)");
    CHECK(lines[3] == "what the host heard from the nodes:");
    CHECK(lines.back() == "since then: waiting for nodes: 1 of 2 joined");
  }

  TEST_CASE("the end, with and without a reason of its own") {
    Json ended = run_of({round_at(1, 0), stop_at(2, 0, "failed", "earlier"), round_at(3, 1),
                         Json{{"what", "end"}, {"time", 9.0}, {"why", nullptr}}},
                        Json::array(), {Json{{"rank", 1}, {"node", "a"}, {"signal", "SIGKILL"}}});
    ended.erase("state");
    ended["exit_code"] = 137;
    ended["ago_s"] = 2;
    Lines lines = explain_lines(ended);
    CHECK(lines[0] == "job: over for 2.0 s, with exit code 137, after 1 restart");
    CHECK(lines[1] == "the run ended at 00:00:09.000");
    CHECK(lines[2] == "why: rank 1 on a was killed by SIGKILL");
    ended["history"].back()["why"] = "too few nodes are left";
    CHECK(explain_lines(ended)[2] == "why: too few nodes are left");
    ended["exit_code"] = ended["restart_count"] = Json();
    CHECK(explain_lines(ended)[0] == "job: over for 2.0 s, with no exit code");
  }

  TEST_CASE("it is never longer than a screen, and controls are quoted") {
    Json events = Json::array();
    for (int i = 0; i < 50; ++i) events.push_back(event_at(2 + i, "failed", "a", "\x1b[2J"));
    Lines lines = explain_lines(run_of({round_at(1, 0), stop_at(3, 0, "failed", "w")}, events,
                                       {Json{{"suspects", "s"}, {"log_path", "l"}}}));
    CHECK(lines.size() <= kMostExplained);
    CHECK(lines[6].ends_with("a \\x1b[2J"));
  }

  TEST_CASE("of runs that are there none that ended is explained") {
    Json page = {
        {"runs", {{{"run", "a"}, {"state", "training"}}, {{"run", "b"}, {"state", "waiting"}}}},
        {"ended", {{{"run", "c"}, {"exit_code", 1}}, {{"run", "c"}, {"exit_code", 2}}}}};
    CHECK(explained_runs(page, "").size() == 2);
    CHECK(explained_runs(page, "b")[0]["run"] == "b");
    CHECK(explained_runs(page, "c")[0]["exit_code"] == 2);
    CHECK(explained_runs(page, "d").empty());
  }

  TEST_CASE("the report of a node says why, what failed before, and what to do") {
    Json before = {{"attempt", 0},        {"rank", 2}, {"node", "b"},  {"exit_code", 137},
                   {"signal", "SIGKILL"}, {"pid", 9},  {"time", 3600}, {"cause", "out of memory"}};
    Json root = {
        {"attempt", 1},
        {"rank", 0},
        {"node", "a"},
        {"pid", 8},
        {"exit_code", 1},
        {"time", 3700.25},
        {"message", "RuntimeError: Timed out"},
        {"log_path", "/logs/attempt_1/0"},
        {"waited_in", "all_reduce"},
        {"suspect_count", 2},
        {"suspects",
         {{{"rank", 1}, {"node", "b"}, {"pid", 7}, {"has_come", true}, {"doing", "sleeps"}}}}};
    Json report = {
        {"run_id", "job"},
        {"node", "a"},
        {"exit_code", 82},
        {"error", nullptr},
        {"root_cause", root},
        {"failures", {before, root}},
        {"slowest", nullptr},
        {"next_step", "look there"},
        {"time",
         {{"up", 200.0},
          {"training", 100.0},
          {"restarts", {{{"cause", "OOM"}, {"node", "b"}, {"count", 1}, {"cost", 4.0}}}}}}};
    run_of(Json::array());  // sets the time zone
    CHECK(explain_report_lines(report, "/logs/report.json") ==
          Lines{"job: over, with exit code 82, after 3 min 20 s, 50.0 % of it training",
                "why: rank 1 (b, pid 7) did not come to all_reduce: it sleeps; 1 more; "
                "so rank 0 on a exited with code 1: RuntimeError: Timed out",
                "when: 01:01:40.250", "its logs: /logs/attempt_1/0",
                "1 restart: 1 x OOM on b (4.0 s)", "failures before, each followed by a restart:",
                "  01:00:00.000  attempt 0: rank 2 on b was killed by SIGKILL: out of memory",
                "next: look there", "by /logs/report.json of a; other nodes have their own"});
  }

  TEST_CASE("a report is at most fifteen lines, and says what ended a run without a failure") {
    Json failures = Json::array();
    for (int i = 0; i < 40; ++i)
      failures.push_back({{"attempt", i}, {"rank", 0}, {"node", "a"}, {"exit_code", 1}});
    Json report = {
        {"run_id", "job"},      {"node", "a"},
        {"exit_code", 143},     {"error", "stopped by SIGTERM"},
        {"failures", failures}, {"signalled", {{"words", "ended from outside by SIGTERM"}}}};
    Lines lines = explain_report_lines(report, "r");
    CHECK(lines.size() <= kMostExplained);
    CHECK(lines[1] == "why: stopped by SIGTERM");
    CHECK(lines[2] == "from outside: ended from outside by SIGTERM");
    CHECK(lines[3] == "the last of 40 failures before:");
    CHECK(explain_report_lines(Json(nullptr), "r").size() == 2);
  }
}
