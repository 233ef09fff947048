// SPDX-License-Identifier: BSD-3-Clause
//
// What the pages show of runs, and to whom.
#include "rendezvous/decide/run_view.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "rendezvous/decide/pace.h"
#include "rendezvous/decide/stack_inquiry.h"
#include "rendezvous/decide/stacks.h"
#include "rendezvous/decide/vitals.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

// A host, by what is said to it.
struct Place {
  runs::State state;
  Chronicle chronicle;
  std::map<std::string, std::string> vitals;
  std::map<std::string, std::string> stacks;
  Now now{.mono = MonoTime(1h), .wall = WallTime(1000s)};

  void says(const std::string& run, const std::string& node, Request request) {
    Message message{.run = run, .node = node, .request = std::move(request)};
    auto next = runs::step(std::move(state), runs::event::Arrived{message}, now);
    state = std::move(next.state);
    auto found = state.runs.find(run);
    chronicle.heard(message, found == state.runs.end() ? nullptr : &found->second, now);
  }
  void on(const runs::Event& event) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    for (const std::string& name : next.changed) {
      auto found = state.runs.find(name);
      chronicle.look(name, found == state.runs.end() ? nullptr : &found->second, now);
    }
  }
  void joins(const std::string& run, const std::string& node, int nodes = 2, int max_restarts = 3,
             bool says_up = false) {
    says(run, node,
         request::Join{.host = node,
                       .address = node,
                       .pid = 17,
                       .participant = {.local_world_size = 2},
                       .settings = {.min_nodes = nodes, .max_nodes = nodes},
                       .policy = {.max_restarts = max_restarts},
                       .store_port = 1000,
                       .run_uuid = run + "-uuid",
                       .says_up = says_up});
  }
  void workers_run(const std::string& node, std::uint64_t round) {
    says("job", node, request::Heartbeat{.up = round});
  }
  double time(const std::string& phase) const { return run()["time"][phase].get<double>(); }
  void fails(const std::string& run, const std::string& node, std::uint64_t round) {
    says(run, node,
         request::Failed{.round = round,
                         .failure = {.rank = 1,
                                     .local_rank = 1,
                                     .pid = 99,
                                     .status = {.exit_code = 1},
                                     .message = "ValueError: token=hunter2",
                                     .log_path = "/home/me/logs"}});
  }
  void pass(Duration time) {
    now.mono += time;
    now.wall += std::chrono::duration_cast<WallTime::duration>(time);
  }

  RunsSource source() const {
    auto text_in = [](const std::map<std::string, std::string>& texts) {
      return [&texts](const std::string& node) {
        auto found = texts.find(node);
        return found == texts.end() ? std::string() : found->second;
      };
    };
    return {.state = &state,
            .chronicle = &chronicle,
            .vitals = text_in(vitals),
            .stacks = text_in(stacks)};
  }
  std::string text(bool is_trusted = true) const {
    RunsSource one = source();
    RunsText pieces(is_trusted);
    std::string text = "{";
    while (pieces.add({&one, 1}, now, text)) continue;
    return text + "}";
  }
  Json page(bool is_trusted = true) const { return Json::parse(text(is_trusted)); }
  Json run(bool is_trusted = true) const { return page(is_trusted)["runs"].at(0); }
  std::string metrics() const {
    RunsSource one = source();
    return runs_metrics({&one, 1}, now);
  }
};

// Two nodes that train for 90 s.
struct Training : Place {
  Training() {
    joins("job", "a");
    pass(10s);
    joins("job", "b");
    pass(90s);
  }
};

// One node, whose agent hosts the run.
struct OwnNode : Place {
  OwnNode() {
    says("job", "a",
         request::Join{.participant = {.local_world_size = 2},
                       .policy = {.max_restarts = 3},
                       .store_port = 1000,
                       .is_host = true,
                       .says_up = true});
  }
  void run_workers(std::uint64_t round) { workers_run("a", round); }
};

// Two nodes that say when their workers run, and are about to start them.
struct Starting : Place {
  Starting() {
    joins("job", "a", 2, 3, true);
    joins("job", "b", 2, 3, true);
  }
};

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_SUITE("rendezvous/decide/run_view") {
  TEST_CASE_FIXTURE(Training, "while stacks are taken it is shown of how many workers") {
    CHECK(run()["taking_stacks"].is_null());
    on(runs::event::StacksWanted{.run = "job"});
    CHECK(run()["taking_stacks"] == 4);
    stacks["a"] = encode(NodeStacks{.number = 1});
    CHECK(run()["taking_stacks"] == 2);
    stacks["b"] = stacks["a"];
    CHECK(run()["taking_stacks"].is_null());
    pass(20s);
    on(runs::event::StacksWanted{.run = "job", .rank = 1});
    CHECK(run()["taking_stacks"] == 1);
    pass(6s);  // it does not answer
    CHECK(run()["taking_stacks"].is_null());
  }

  TEST_CASE_FIXTURE(Training, "stacks are taken, too, where one has waited in vain") {
    says("job", "a",
         request::Failed{.failure = {.rank = 1}, .wait = TimedOutWait{.in = "barrier"}});
    CHECK(run()["taking_stacks"] == 4);
    says("job", "b", request::Found{});
    CHECK(run()["taking_stacks"] == 2);
    says("job", "a", request::Found{});
    CHECK(run()["taking_stacks"].is_null());
  }

  TEST_CASE("a run that waits says for whom") {
    Place place;
    place.joins("job", "a");
    Json run = place.run();
    CHECK(run["run"] == "job");
    CHECK(run["state"] == "waiting");
    CHECK(run["round"].is_null());
    CHECK(
        run["waiting_for"].get<std::string>().starts_with("waiting for nodes: 1 of 2 joined (a)"));
    CHECK(run["nodes"][0]["state"] == "waiting");
    CHECK(run["nodes"][0]["base_rank"].is_null());
  }

  TEST_CASE("a run that trains has its nodes by rank, and its time") {
    Training place;
    Json run = place.run();
    CHECK(run["state"] == "training");
    CHECK(run["round"] == 0);
    CHECK(run["world_size"] == 4);
    CHECK(run["waiting_for"].is_null());
    CHECK(run["time"]["waiting"] == 10.0);
    CHECK(run["time"]["training"] == 90.0);
    CHECK(run["nodes"][1]["host"] == "b");
    CHECK(run["nodes"][1]["base_rank"] == 2);
    CHECK(run["nodes"][1]["state"] == "training");
    CHECK(run["history"].size() == 1);
    CHECK(run["history"][0]["workers"] == 4);
    CHECK(run["history"][0]["time"] == 1010.0);
  }

  TEST_CASE("a failure stops the round: the history has the cause") {
    Training place;
    place.fails("job", "b", 0);
    place.pass(1s);
    Json run = place.run();
    CHECK(run["state"] == "stopping");
    CHECK(run["restart_count"] == 1);
    CHECK(run["stops"]["failed"] == 1);
    CHECK(run["history"][1]["what"] == "stop");
    CHECK(run["history"][1]["cause"] == "failed");
    CHECK(run["nodes"][0]["state"] == "stopping");
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.says("job", "b", request::Ready{.round = 0, .store_port = 1});
    run = place.run();
    CHECK(run["state"] == "training");
    CHECK(run["round"] == 1);
    CHECK(run["time"]["stopping"] == 1.0);
  }

  TEST_CASE("a round is starting until the workers of all its nodes run, also at a ddpd") {
    Starting place;
    place.pass(2s);
    place.workers_run("a", 0);
    place.pass(3s);
    CHECK(place.time("starting") == 5.0);
    CHECK(place.time("training") == 0.0);
    place.workers_run("a", 0);  // each heartbeat says so
    place.workers_run("b", 0);
    place.workers_run("b", 0);
    place.pass(90s);
    CHECK(place.time("starting") == 5.0);
    CHECK(place.time("training") == 90.0);
    place.fails("job", "b", 0);
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.says("job", "b", request::Ready{.round = 0, .store_port = 1});
    place.workers_run("a", 0);  // it has not heard of round 1 yet
    place.workers_run("b", 0);
    place.pass(1s);
    CHECK(place.time("starting") == 6.0);
    place.says("job", "a", request::Succeeded{.round = 1});  // quickly
    place.workers_run("b", 1);
    place.pass(1s);
    CHECK(place.time("starting") == 6.0);
    CHECK(place.time("training") == 91.0);
    CHECK(has_line(place.metrics(),
                   R"(ddprun_restarting_seconds_total{run="job",cause="failed"} 1.000)"));
  }

  TEST_CASE("of nodes of which some are older, the start ends when the others' workers run") {
    Place place;
    place.joins("job", "a", 2, 3, true);
    place.joins("job", "b");
    place.pass(2s);
    place.workers_run("a", 0);
    place.pass(5s);
    CHECK(place.time("starting") == 2.0);
    CHECK(place.time("training") == 5.0);
  }

  TEST_CASE("what stopped a round is told apart: a node that left, one that was lost") {
    Training place;
    bool has_left = true;
    SUBCASE("left") {}
    SUBCASE("lost") {
      has_left = false;
    }
    request::Left left{.why = has_left ? "" : "was lost (its agent, pid 7, was killed)"};
    place.says("job", "b", left);
    const std::string word = has_left ? "left" : "lost";
    CHECK(place.run()["history"][1]["cause"] == word);
    CHECK(place.run()["stops"].size() == 1);
    CHECK(place.run()["stops"][word] == 1);
    for (const std::string cause : {"failed", "lost", "left", "cut_off", "rendezvous", "joined"}) {
      const std::string line = "ddprun_restarts_total{run=\"job\",cause=\"" + cause + "\"} " +
                               (cause == word ? "1" : "0");
      CAPTURE(line);
      CHECK(has_line(place.metrics(), line));
    }
  }

  TEST_CASE("where the host has a node, a round is starting until its workers run") {
    OwnNode place;
    place.pass(2s);
    CHECK(place.time("starting") == 2.0);
    CHECK(place.time("training") == 0.0);
    place.run_workers(7);  // of another round
    place.run_workers(0);
    place.run_workers(0);
    place.pass(90s);
    CHECK(place.time("starting") == 2.0);
    CHECK(place.time("training") == 90.0);
    place.fails("job", "a", 0);
    place.pass(3s);
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.pass(4s);
    CHECK(has_line(place.metrics(),
                   R"(ddprun_restarting_seconds_total{run="job",cause="failed"} 0.000)"));
    place.run_workers(1);
    place.pass(10s);
    CHECK(place.time("stopping") == 3.0);
    CHECK(place.time("starting") == 6.0);
    CHECK(place.time("training") == 100.0);
    for (const char* line : {R"(ddprun_time_seconds_total{run="job",phase="starting"} 6.000)",
                             R"(ddprun_time_seconds_total{run="job",phase="training"} 100.000)",
                             R"(ddprun_restarting_seconds_total{run="job",cause="failed"} 7.000)",
                             R"(ddprun_restarting_seconds_total{run="job",cause="lost"} 0.000)"}) {
      CAPTURE(line);
      CHECK(has_line(place.metrics(), line));
    }
  }

  TEST_CASE("since when a worker has hung is known when it is ended, and is part of the training") {
    OwnNode place;
    place.run_workers(0);
    place.pass(90s);
    place.says("job", "a", request::Failed{.failure = {.rank = 1, .hung_for = 60s}});
    CHECK(has_line(place.metrics(), R"(ddprun_hanging_seconds_total{run="job"} 60.000)"));
    CHECK(place.time("training") == 90.0);
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.pass(5s);
    place.says("job", "a", request::Failed{.round = 1, .failure = {.rank = 1, .hung_for = 999s}});
    CHECK(has_line(place.metrics(), R"(ddprun_hanging_seconds_total{run="job"} 65.000)"));
  }

  TEST_CASE("workers that are stopped before all of them ran have only been starting") {
    OwnNode place;
    place.pass(2s);
    place.fails("job", "a", 0);
    place.pass(3s);
    CHECK(place.time("starting") == 2.0);
    CHECK(place.time("training") == 0.0);
  }

  TEST_CASE("the only node of a run goes by the name of its host, and failures name none") {
    OwnNode place;
    place.state.runs.at("job").only_host = "laptop";
    place.fails("job", "a", 0);
    CHECK(place.run()["nodes"][0]["host"] == "laptop");
    CHECK(place.run()["failures"][0]["node"].is_null());
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.on(runs::event::StacksWanted{.run = "job"});
    CHECK(Json::parse(*stacks_json(place.state, "job", place.source().stacks,
                                   place.now.mono))["nodes"][0]["host"] == "laptop");
  }

  TEST_CASE("of older nodes alone a host takes a round for training, and knows restarts") {
    Training place;
    place.fails("job", "b", 0);
    place.pass(5s);
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.says("job", "b", request::Ready{.round = 0, .store_port = 1});
    CHECK(place.run()["time"]["starting"] == 0.0);
    CHECK(has_line(place.metrics(),
                   R"(ddprun_restarting_seconds_total{run="job",cause="failed"} 5.000)"));
  }

  TEST_CASE("what workers have said, and paths, are for a trusted reader only") {
    Training place;
    Vitals vitals{.log_folder = "/home/me/logs/job_x",
                  .workers = {{.local_rank = 0, .pid = 5, .last_line = "hunter2 at /home/me"}}};
    place.vitals["a"] = encode(vitals);
    place.fails("job", "b", 0);
    CHECK(place.run(true)["failures"][0]["message"] == "ValueError: token=hunter2");
    CHECK(place.run(true)["nodes"][0]["vitals"][0]["last_line"] == "hunter2 at /home/me");
    CHECK(place.run(true)["nodes"][0]["log_folder"] == "/home/me/logs/job_x");
    CHECK(place.run(true)["nodes"][1]["log_folder"].is_null());
    std::string shown = place.text(false);
    CHECK(shown.find("hunter2") == std::string::npos);
    CHECK(shown.find("/home") == std::string::npos);
    CHECK(place.run(false)["failures"][0]["exit_code"] == 1);
    CHECK(place.run(false)["history"][1]["why"] == "rank 1 on b exited with code 1");
    CHECK(place.run(false)["nodes"][0]["vitals"][0]["pid"] == 5);
  }

  TEST_CASE("a worker that is slow is shown, and in the end the slowest of the run") {
    Training place;
    CHECK(place.run()["slow"].empty());
    CHECK(place.run()["slowest"].is_null());
    Pace pace{.behind = {{.rank = 3, .host = "b", .why = "is 41 s behind"}}, .slowest = "rank 3"};
    place.on(runs::event::PaceSeen{.run = "job", .pace = pace});
    place.on(runs::event::PaceSeen{.run = "another", .pace = pace});
    for (bool is_trusted : {false, true}) {
      CHECK(place.run(is_trusted)["slow"] ==
            Json::parse(R"([{"rank": 3, "host": "b", "why": "is 41 s behind"}])"));
      CHECK(place.run(is_trusted)["slowest"] == "rank 3");
    }
    place.says("job", "a", request::Succeeded{.round = 0});
    place.says("job", "b", request::Succeeded{.round = 0});
    CHECK(place.page()["ended"].at(0)["slowest"] == "rank 3");
  }

  TEST_CASE("for how long a worker has done nothing is shown from the first look") {
    Training place;
    place.vitals["b"] = encode({.workers = {{.local_rank = 0, .pid = 5}, {.local_rank = 1}}});
    auto still = [&](int local) {
      return place.run(false)["nodes"][1]["vitals"][local]["still_s"];
    };
    CHECK(still(1).is_null());
    Pace pace{.still = {{3, place.now.mono}}};
    place.on(runs::event::PaceSeen{.run = "job", .pace = pace});
    place.pass(46s);
    CHECK(still(0).is_null());
    CHECK(still(1) == 46.0);
  }

  TEST_CASE("a lost node is shown until the next round has begun, and for a moment after that") {
    Training place;
    CHECK(place.run()["lost_nodes"].empty());
    place.says("job", "b", request::Left{.why = "was lost (its agent, pid 7, was killed)"});
    place.pass(40s);
    Json lost = place.run(false)["lost_nodes"];
    REQUIRE(lost.size() == 1);
    CHECK(lost[0] == Json::parse(R"({"node": "b", "host": "b", "workers": 2, "group_rank": 1,
                                     "base_rank": 2, "round": 0, "ago_s": 40.0})"));
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    CHECK(place.run()["lost_nodes"].size() == 1);
    place.joins("job", "c");
    REQUIRE(place.run()["round"] == 1);
    CHECK(place.run()["lost_nodes"].empty());
    place.says("job", "c", request::Left{.why = "was lost (its agent, pid 8, was killed)"});
    place.says("job", "a", request::Ready{.round = 1, .store_port = 1});
    place.joins("job", "d");
    REQUIRE(place.run()["round"] == 2);
    CHECK(place.run()["lost_nodes"].size() == 1);
    place.pass(15s);
    CHECK(place.run()["lost_nodes"].empty());
  }

  TEST_CASE("a node that leaves is not lost") {
    Training place;
    place.says("job", "b", request::Leaving{.why = "was stopped by SIGTERM", .signal = 15});
    place.says("job", "b", request::Left{.round = 0});
    CHECK(place.run()["nodes"].size() == 1);
    CHECK(place.run()["lost_nodes"].empty());
  }

  TEST_CASE("a run whose nodes have all gone without an end is among those that have ended") {
    Training place;
    for (const char* node : {"a", "b"}) {
      place.says("job", node, request::Leaving{.why = "was stopped by SIGTERM", .signal = 15});
      CHECK(place.page()["ended"].empty());
    }
    for (const char* node : {"a", "b"}) place.says("job", node, request::Left{.round = 0});
    place.pass(5s);
    Json over = place.page()["ended"].at(0);
    CHECK(place.page()["ended"].size() == 1);
    CHECK(over["run"] == "job");
    CHECK(over["exit_code"].is_null());
    CHECK(over["why"] == "none of its nodes is left (a was stopped by SIGTERM)");
    CHECK(over["ago_s"] == 5.0);
    CHECK(over["history"].at(0)["what"] == "round");
    CHECK(place.page(false)["ended"].at(0)["why"] == "none of its nodes is left");
    SUBCASE("until one comes back") {
      place.joins("job", "a");
      CHECK(place.page()["ended"].empty());
    }
    SUBCASE("beside one with the same id that has begun anew") {
      place.says("job", "c", request::Join{.host = "c", .address = "c", .store_port = 1});
      CHECK(place.page()["runs"].size() == 1);
      CHECK(place.page()["ended"].size() == 1);
    }
  }

  TEST_CASE("a rank that kept others waiting in several attempts is slow") {
    Training place;
    for (std::uint64_t round : {0U, 1U}) {
      CHECK(place.run()["slow"].empty());
      request::Failed failed{.round = round, .failure = {.rank = 1, .status = {.exit_code = 1}}};
      failed.failure.suspects = {{.rank = 2, .node = "b"}};
      place.says("job", "a", failed);
      for (const char* node : {"a", "b"})
        place.says("job", node, request::Ready{.round = round, .store_port = 1});
    }
    CHECK(place.run()["slow"].at(0)["rank"] == 2);
    CHECK(place.run()["slow"].at(0)["why"] == "kept others waiting in 2 attempts");
  }

  TEST_CASE("samples are of the workers of this round that have not ended") {
    Training place;
    const coordinator::State& run = place.state.runs.at("job");
    auto samples = [&] { return samples_of(run, place.source().vitals); };
    CHECK(samples().empty());
    place.vitals["a"] = encode(Vitals{.round = 7, .workers = {{.local_rank = 0}}});
    place.vitals["b"] = encode(Vitals{.number = 4,
                                      .round = 0,
                                      .workers = {{.local_rank = 0, .state = '-'},
                                                  {.local_rank = 1, .output_bytes = 9, .step = 5},
                                                  {.local_rank = 2}}});
    REQUIRE(samples().size() == 1);
    CHECK(samples()[0].rank == 3);
    CHECK(samples()[0].host == "b");
    CHECK(samples()[0].number == 4);
    CHECK(samples()[0].step == 5);
    CHECK(samples()[0].output_bytes == 9);
  }

  TEST_CASE(
      "vitals of another round, of a stranger's making, or of too many workers are not shown") {
    Training place;
    Vitals vitals{.round = 9, .workers = {{.local_rank = 0, .pid = 5}}};
    place.vitals["a"] = encode(vitals);
    CHECK(place.run()["nodes"][0]["vitals"].is_null());
    place.vitals["a"] = "{\"pid\": 5}";
    CHECK(place.run()["nodes"][0]["vitals"].is_null());
    vitals.round = 0;
    vitals.workers.assign(50, {.local_rank = 0, .pid = 5});
    place.vitals["a"] = encode(vitals);
    CHECK(place.run()["nodes"][0]["vitals"].size() == 2);
  }

  TEST_CASE("a run that is over is listed with its end") {
    Training place;
    place.says("job", "a", request::Succeeded{0});
    place.says("job", "b", request::Succeeded{0});
    CHECK(place.page()["runs"].empty());
    CHECK(place.page()["more_runs"] == 0);
    CHECK(place.page()["ended"].size() == 1);
    place.says("job", "a", request::Left{});
    place.says("job", "b", request::Left{});
    place.pass(5s);
    Json page = place.page();
    CHECK(page["runs"].empty());
    CHECK(page["ended"][0]["run"] == "job");
    CHECK(page["ended"][0]["exit_code"] == 0);
    CHECK(page["ended"][0]["ago_s"] == 5.0);
  }

  TEST_CASE("a run that is over is listed with its nodes until they have ended their workers") {
    Training place;
    request::Failed failed{.round = 0, .failure = {.rank = 1, .status = {.exit_code = 1}}};
    for (int i = 0; i < 4 && place.run()["state"] != "ended"; ++i) {
      failed.round = place.run()["round"];
      place.says("job", "a", failed);
      if (place.run()["state"] == "ended") break;
      for (const char* node : {"a", "b"})
        place.says("job", node, request::Ready{.round = failed.round, .store_port = 1});
    }
    REQUIRE(place.run()["state"] == "ended");
    CHECK(place.run()["nodes"].size() == 2);
    CHECK(place.page()["ended"].empty());
    place.says("job", "a", request::Left{});
    CHECK(place.page()["runs"].size() == 1);
    CHECK(place.page()["ended"].empty());
    place.says("job", "b", request::Left{});
    CHECK(place.page()["runs"].empty());
    CHECK(place.page()["ended"].size() == 1);
  }

  TEST_CASE("a run that another host has is shown with where it is, as long as it says so") {
    Place place;
    place.on(runs::event::Begun{.files = {}, .name = "a@0"});
    place.says("job", "b.knock",
               request::Knock{.from = {"b", 7}, .to = {"a", 1}, .has_round = true, .formed = 3});
    CHECK(place.page()["runs"].empty());
    CHECK(place.page()["elsewhere"] == Json::parse(R"([{"run": "job", "at": "b:7"}])"));
    place.pass(1min);
    place.on(runs::event::Tick{});
    CHECK(place.page()["elsewhere"].empty());
  }

  TEST_CASE("the history of a run that restarts for ever is bounded") {
    Place place;
    place.joins("job", "a", 1, 100'000);
    for (std::uint64_t round = 0; round < 1000; ++round) {
      place.fails("job", "a", round);
      place.says("job", "a", request::Ready{.round = round, .store_port = 1});
    }
    CHECK(place.run()["history"].size() == kKeptHappenings);
    CHECK(place.run()["happened"] == 2001);
    CHECK(place.run()["stops"]["failed"] == 1000);
  }

  TEST_CASE("the metrics have each run as a label") {
    Training place;
    place.fails("job", "b", 0);
    place.says("job", "a", request::Ready{.round = 0, .store_port = 1});
    place.says("job", "b", request::Ready{.round = 0, .store_port = 1});
    place.joins("an \"odd\\one\"\n", "c");
    std::string text = place.metrics();
    CHECK(has_line(text, "# TYPE ddprun_restarts_total counter"));
    CHECK(has_line(text, "ddprun_restarts_total{run=\"job\",cause=\"failed\"} 1"));
    CHECK(has_line(text, "ddprun_restarts_total{run=\"job\",cause=\"lost\"} 0"));
    CHECK(has_line(text, "ddprun_round{run=\"job\"} 1"));
    CHECK(has_line(text, "ddprun_world_size{run=\"job\"} 4"));
    CHECK(has_line(text, "ddprun_workers{run=\"job\",state=\"training\"} 4"));
    CHECK(has_line(text, "ddprun_nodes{run=\"job\",state=\"waiting\"} 0"));
    CHECK(has_line(text, "ddprun_time_seconds_total{run=\"job\",phase=\"training\"} 90.000"));
    CHECK(has_line(text, "ddprun_restarts_left{run=\"job\"} 2"));
    CHECK(text.find("run=\"an \\\"odd\\\\one\\\"\\n\"") != std::string::npos);
  }

  TEST_CASE("of thousands of runs the first ones are shown, those with a round before others") {
    Training place;
    for (int i = 0; i < 600; ++i) place.joins("a" + std::to_string(i), "node" + std::to_string(i));
    Json page = place.page();
    CHECK(page["runs"].size() == 512);
    CHECK(page["runs"][0]["run"] == "job");
    CHECK(page["more_runs"] == 601 - 512);
    std::string metrics = place.metrics();
    CHECK(has_line(metrics, "ddprun_round{run=\"job\"} 0"));
    CHECK(metrics.find("run=\"a0\"") != std::string::npos);
    CHECK(metrics.find("run=\"a99\"") == std::string::npos);
  }

  TEST_CASE("names of runs make the metrics no longer than others") {
    Training place;
    for (int i = 0; i < 200; ++i)
      place.joins(std::to_string(i) + std::string(200, '"'), "node" + std::to_string(i));
    std::string metrics = place.metrics();
    CHECK(has_line(metrics, "ddprun_round{run=\"job\"} 0"));
    CHECK(metrics.size() < 4 << 20);
  }

  TEST_CASE("a long page is made in pieces of bounded size") {
    Place place;
    for (int i = 0; i < 2000; ++i) place.joins("job", "node" + std::to_string(i), 5000);
    for (int i = 0; i < 400; ++i) place.joins("run" + std::to_string(i), "one" + std::to_string(i));
    RunsSource one = place.source();
    RunsText pieces(true);
    std::string text = "{";
    std::size_t longest = 0;
    for (bool has_more = true; has_more;) {
      std::size_t before = text.size();
      has_more = pieces.add({&one, 1}, place.now, text);
      longest = std::max(longest, text.size() - before);
    }
    CHECK(text.size() > 10 * kPieceBytes);
    CHECK(longest < 2 * kPieceBytes);
    Json page = Json::parse(text + "}");
    CHECK(page["runs"].size() == 401);
    CHECK(page["runs"][0]["nodes"].size() == 2000);
  }

  TEST_CASE("what goes between two pieces of a page is left out of it") {
    Place place;
    for (int i = 0; i < 1000; ++i) place.joins("job", "node" + std::to_string(i), 5000);
    for (int i = 0; i < 100; ++i) place.joins("run" + std::to_string(i), "one" + std::to_string(i));
    RunsSource one = place.source();
    RunsText pieces(true);
    std::string text = "{";
    REQUIRE(pieces.add({&one, 1}, place.now, text));
    for (int i = 500; i < 1000; ++i) place.says("job", "node" + std::to_string(i), request::Left{});
    for (int i = 0; i < 50; ++i)
      place.says("run" + std::to_string(i), "one" + std::to_string(i), request::Left{});
    SUBCASE("nodes and runs") {
      while (pieces.add({&one, 1}, place.now, text)) continue;
      Json page = Json::parse(text + "}");
      CHECK(page["runs"].size() == 51);
      CHECK(page["runs"][0]["nodes"].size() == 500);
    }
    SUBCASE("their host") {
      while (pieces.add({}, place.now, text)) continue;
      CHECK(Json::parse(text + "}")["runs"].size() == 1);
    }
  }

  TEST_CASE("of thousands of nodes the first ones are shown") {
    Place place;
    for (int i = 0; i < 4100; ++i) place.joins("job", "node" + std::to_string(i), 5000);
    CHECK(place.run()["nodes"].size() == 4096);
    CHECK(place.run()["more_nodes"] == 4);
  }
}
