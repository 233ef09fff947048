// SPDX-License-Identifier: BSD-3-Clause
#include "agent/timeline.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/event_loop.h"
#include "tests/support/fake_workers.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::agent;
using Json = nlohmann::json;

namespace {

struct Drawing {
  boost::asio::io_context loop;
  test::TempDir base;
  std::vector<std::string> unused;
  test::FakeWorkers workers{unused};
  std::vector<std::string> said;
  Timeline timeline;

  explicit Drawing(bool is_wanted = true)
      : timeline(
            loop.get_executor(), {.path = is_wanted ? path() : "", .node = "node", .host = "host"},
            workers, [](const Error&) {},
            [this](std::string text) { said.push_back(std::move(text)); }) {
    workers.present.push_back({.local_rank = 0, .rank = 4, .pid = 7, .folder = base.path()});
  }
  std::string path() const { return base.path() + "/timeline.json"; }
  std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void worker_says(const std::string& name) {
    std::ofstream(slices_path(base.path()), std::ios::app)
        << R"({"name": ")" << name << R"(", "begin": 1.5, "end": 2, "step": 1200})"
        << "\n";
  }
  void end() {
    bool has_ended = false;
    boost::asio::co_spawn(
        loop,
        [&]() -> boost::asio::awaitable<void> {
          co_await timeline.end();
          has_ended = true;
        },
        boost::asio::detached);
    REQUIRE(test::run_until(loop, [&] { return has_ended; }));
  }
};

Json slice_in(const Json& events, const std::string& name) {
  for (const Json& event : events) {
    if (event.value("ph", "") == "X" && event.value("name", "") == name) return event;
  }
  return nullptr;
}

}  // namespace

TEST_SUITE("agent/timeline") {
  TEST_CASE("what a worker says it has done is a slice in its row") {
    Drawing run;
    run.timeline.hosted({.name = "the run begins"});
    run.timeline.workers_run(0, 0);
    run.worker_says("checkpoint");
    // While it runs.
    REQUIRE(test::run_until(run.loop,
                            [&] { return run.text().find("checkpoint") != std::string::npos; }));
    // And what it has said at last.
    run.worker_says("eval");
    run.timeline.worker_ended({.local_rank = 0, .rank = 4, .pid = 7, .folder = run.base.path()});
    run.end();
    Json events = Json::parse(run.text());
    Json checkpoint = slice_in(events, "checkpoint");
    REQUIRE(checkpoint.is_object());
    CHECK(checkpoint["ts"] == 1'500'000);
    CHECK(checkpoint["dur"] == 500'000);
    CHECK(checkpoint["tid"] == 0);
    CHECK(checkpoint["args"]["step"] == "1200");
    CHECK(slice_in(events, "eval").is_object());
    CHECK(run.said.empty());  // nobody else writes it
  }

  TEST_CASE("where another agent writes the file, it gets the slices") {
    Drawing run;
    run.timeline.workers_run(0, 0);
    run.worker_says("checkpoint");
    run.timeline.worker_ended({.local_rank = 0, .rank = 4, .pid = 7, .folder = run.base.path()});
    bool is_settled = false;
    boost::asio::co_spawn(
        run.loop,
        [&]() -> boost::asio::awaitable<void> {
          co_await run.timeline.settled();
          is_settled = true;
        },
        boost::asio::detached);
    REQUIRE(test::run_until(run.loop, [&] { return is_settled; }));
    REQUIRE(run.said.size() == 1);
    rendezvous::SliceWatch watch;
    auto slices = watch.news("node.1", run.said.front());
    REQUIRE(slices.size() == 1);
    CHECK(slices[0].name == "checkpoint");
    CHECK(slices[0].thread == 0);
    run.end();
    CHECK(run.text().empty());
  }

  TEST_CASE("where no timeline is wanted nothing is read") {
    Drawing run(false);
    run.timeline.workers_run(0, 0);
    run.worker_says("checkpoint");
    run.timeline.worker_ended({.local_rank = 0, .rank = 4, .pid = 7, .folder = run.base.path()});
    run.end();
    CHECK(run.text().empty());
  }
}
