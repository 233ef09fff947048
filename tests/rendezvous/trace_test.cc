// SPDX-License-Identifier: BSD-3-Clause
//
// What happens to a run as events of a trace, and these as text.
#include "rendezvous/decide/trace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rendezvous/decide/run_trace.h"
#include "rendezvous/decide/run_view.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/tracer.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using Json = nlohmann::json;
using Kind = TraceEvent::Kind;

namespace {

// A host, by what is said to it.
struct Place {
  runs::State state;
  Tracer tracer;
  Now now{.mono = MonoTime(1h), .wall = WallTime(1000s)};
  std::vector<TraceEvent> seen;

  void step(const runs::Event& event, const std::string& node) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    auto found = state.runs.find("job");
    tracer.look("job", found == state.runs.end() ? nullptr : &found->second, node, now.wall,
                [this](const std::string& run, const TraceEvent& event_seen) {
                  CHECK(run == "job");
                  seen.push_back(event_seen);
                });
  }
  void says(const std::string& node, Request request) {
    step(runs::event::Arrived{{.run = "job", .node = node, .request = std::move(request)}}, node);
  }
  void joins(const std::string& node) {
    says(node, request::Join{.host = "host-" + node,
                             .address = node,
                             .pid = 17,
                             .participant = {.local_world_size = 2},
                             .settings = {.min_nodes = 2, .max_nodes = 2},
                             .policy = {.max_restarts = 3},
                             .store_port = 1000,
                             .run_uuid = "uuid"});
  }
  void pass(Duration time) {
    now.mono += time;
    now.wall += std::chrono::duration_cast<WallTime::duration>(time);
  }
  // As "B run: round 0", of what was seen since the last call.
  std::vector<std::string> told() {
    std::vector<std::string> lines;
    for (const TraceEvent& event : std::exchange(seen, {})) {
      std::string kind = event.kind == Kind::Begin ? "B " : event.kind == Kind::End ? "E " : "i ";
      std::string name = event.name;
      if (event.base_rank >= 0) name += std::to_string(event.base_rank);
      lines.push_back(kind + (event.node.empty() ? "run" : event.node) +
                      (name.empty() ? "" : ": " + name));
    }
    return lines;
  }
};

using Lines = std::vector<std::string>;

Json parsed(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  REQUIRE(json.is_array());
  return json;
}

// Those of the trace that are no names.
Json events_in(const Json& trace) {
  Json events = Json::array();
  for (const Json& event : trace)
    if (event["ph"] != "M") events.push_back(event);
  return events;
}

std::string written(const std::vector<TraceEvent>& events, bool is_ended = true) {
  TraceText text;
  std::string out = TraceText::head();
  for (const TraceEvent& event : events) out += text.lines(event);
  return is_ended ? out + TraceText::tail() : out;
}

}  // namespace

TEST_SUITE("rendezvous/decide/tracer") {
  TEST_CASE("a run with a restart: its rounds, its stop and its nodes' workers") {
    Place place;
    place.joins("a");
    CHECK(place.told() == Lines{"B run: waiting for nodes", "i a: joined the run"});
    place.joins("b");
    CHECK(place.told() ==
          Lines{"E run", "B run: round 0", "B a: rank 0", "i b: joined the run", "B b: rank 2"});
    place.pass(90s);
    place.says("b", request::Failed{.round = 0,
                                    .failure = {.rank = 3,
                                                .local_rank = 1,
                                                .pid = 99,
                                                .status = {.exit_code = 1},
                                                .message = "token=hunter2"}});
    REQUIRE(place.seen.size() == 3);
    CHECK(place.seen[1].at == WallTime(1090s));
    CHECK(place.seen[1].facts.at(0).second.find("rank 3") != std::string::npos);
    CHECK(place.seen[1].facts.at(0).second.find("hunter2") == std::string::npos);
    CHECK(place.told() == Lines{"E run", "i run: stop: failed", "B run: stopping round 0"});
    place.says("b", request::Ready{.round = 0, .store_port = 1});
    CHECK(place.told() == Lines{"E b"});
    place.says("a", request::Ready{.round = 0, .store_port = 1});
    CHECK(place.told() == Lines{"E run", "B run: round 1", "E a", "B a: rank 0", "B b: rank 2"});
    place.says("a", request::Succeeded{.round = 1});
    CHECK(place.told() == Lines{"E a"});
    place.says("b", request::Succeeded{.round = 1});
    CHECK(place.told() == Lines{"E run", "i run: the run is over", "E b"});
  }

  TEST_CASE("what is kept for the pages is bounded, and of one run") {
    Place place;
    place.joins("a");
    for (std::size_t i = 0; i < kKeptTraceEvents; ++i) {
      coordinator::State other;
      place.tracer.look("other", i % 2 == 0 ? &other : nullptr, "", place.now.wall, nullptr);
    }
    CHECK(place.tracer.end() - place.tracer.first() <= kKeptTraceEvents);
    RunsSource source{.state = &place.state, .tracer = &place.tracer};
    auto trace = TraceOfRun::of({&source, 1}, "job");
    REQUIRE(trace.has_value());
    std::string text;
    while (trace->add({&source, 1}, text)) continue;
    CHECK(Json::parse(text).size() == 9);  // two events, what names them, and the end
    CHECK(!TraceOfRun::of({&source, 1}, "nothing").has_value());
  }

  TEST_CASE("a long trace is made in pieces, and what is forgotten meanwhile is left out") {
    Place place;
    constexpr int kEvents = 20'000;
    for (int i = 0; i < kEvents; ++i) {
      coordinator::State run;
      run.phase = i % 2 == 0 ? coordinator::Phase::Running : coordinator::Phase::Gathering;
      place.tracer.look("long", &run, "", place.now.wall, nullptr);
    }
    RunsSource source{.state = &place.state, .tracer = &place.tracer};
    auto trace = TraceOfRun::of({&source, 1}, "long");
    REQUIRE(trace.has_value());
    std::string text;
    std::size_t longest = 0;
    std::size_t pieces = 1;
    for (bool has_more = true; has_more; ++pieces) {
      std::size_t before = text.size();
      has_more = trace->add({&source, 1}, text);
      longest = std::max(longest, text.size() - before);
    }
    CHECK(longest < 2 * kPieceBytes);
    CHECK(pieces > 10);
    CHECK(Json::parse(text).size() > kEvents);
    std::string shorter;
    auto again = TraceOfRun::of({&source, 1}, "long");
    REQUIRE(again.has_value());
    REQUIRE(again->add({&source, 1}, shorter));
    for (std::size_t i = 0; i < kKeptTraceEvents; ++i) {
      coordinator::State other;
      other.phase = i % 2 == 0 ? coordinator::Phase::Running : coordinator::Phase::Gathering;
      place.tracer.look("other", &other, "", place.now.wall, nullptr);
    }
    while (again->add({&source, 1}, shorter)) continue;
    CHECK(shorter.size() < 2 * kPieceBytes);
    CHECK(Json::accept(shorter));
  }
}

TEST_SUITE("rendezvous/decide/trace") {
  TEST_CASE("a process is a node and a thread a local rank") {
    Json trace = parsed(written({{.kind = Kind::Begin, .at = WallTime(2s), .name = "round 0"},
                                 {.kind = Kind::Begin,
                                  .at = WallTime(3s),
                                  .node = "n",
                                  .host = "node7",
                                  .threads = 2,
                                  .name = "rank ",
                                  .base_rank = 4}}));
    auto is_name = [](const Json& event) { return event["name"] == "process_name"; };
    auto named = std::ranges::find_if(trace, [&](const Json& event) {
      return is_name(event) && event["args"]["name"] == "node7";
    });
    REQUIRE(named != trace.end());
    Json events = events_in(trace);
    REQUIRE(events.size() == 3);
    CHECK(events[0]["pid"] == 0);
    CHECK(events[0]["ts"] == 2'000'000);
    CHECK(events[1]["name"] == "rank 4");
    CHECK(events[1]["tid"] == 0);
    CHECK(events[1]["pid"] == (*named)["pid"]);
    CHECK(events[2]["name"] == "rank 5");
    CHECK(events[2]["tid"] == 1);
  }

  TEST_CASE("beginnings and ends are pairs") {
    Json events = events_in(parsed(written({{.kind = Kind::End},
                                            {.kind = Kind::Begin, .name = "one"},
                                            {.kind = Kind::Begin, .name = "two"},
                                            {.kind = Kind::End},
                                            {.kind = Kind::End}})));
    REQUIRE(events.size() == 4);
    CHECK(events[0]["name"] == "one");
    CHECK(events[1]["ph"] == "E");
    CHECK(events[2]["name"] == "two");
    CHECK(events[3]["ph"] == "E");
  }

  TEST_CASE("a slice leaves open what is open") {
    Json events =
        events_in(parsed(written({{.kind = Kind::Begin, .at = WallTime(1s), .name = "one"},
                                  {.kind = Kind::Slice,
                                   .at = WallTime(2s),
                                   .until = WallTime(3500ms),
                                   .name = "checkpoint",
                                   .facts = {{"step", "7"}}},
                                  {.kind = Kind::End, .at = WallTime(4s)}})));
    REQUIRE(events.size() == 3);
    CHECK(events[1]["ph"] == "X");
    CHECK(events[1]["ts"] == 2'000'000);
    CHECK(events[1]["dur"] == 1'500'000);
    CHECK(events[1]["name"] == "checkpoint");
    CHECK(events[1]["args"]["step"] == "7");
    CHECK(events[2]["ph"] == "E");
  }

  TEST_CASE("a text that is cut anywhere is completed") {
    std::string whole = written({{.name = "one"}, {.name = "two"}});
    CHECK(completed_trace(whole) == whole);
    for (std::size_t size = 0; size < whole.size(); ++size)
      CHECK(Json::parse(completed_trace(whole.substr(0, size)), nullptr, false).is_array());
  }

  TEST_CASE("bytes that are no text are replaced") {
    CHECK(events_in(parsed(written({{.name = "\xff\"\n"}}))).size() == 1);
  }
}
