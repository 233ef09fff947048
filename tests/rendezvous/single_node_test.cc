// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/single_node.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <optional>

#include "store/client.h"
#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

struct Loop {
  boost::asio::io_context loop;

  template <class T>
  T run(boost::asio::awaitable<T> task) {
    std::optional<T> result;
    boost::asio::co_spawn(loop, std::move(task),
                          [&](std::exception_ptr, T value) { result = std::move(value); });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return std::move(*result);
  }
};

// A handler and all that it has said.
struct Node {
  Node(Loop& loop_, SingleNodeConfig config)
      : loop(loop_), handler(loop.loop.get_executor(), config) {
    handler.listen([this](const Notice& notice) { notices.push_back(notice); });
  }
  ~Node() {
    bool is_done = false;
    boost::asio::co_spawn(loop.loop, handler.finish(), [&](std::exception_ptr) { is_done = true; });
    test::run_until(loop.loop, [&] { return is_done; });
  }

  // The next thing that it says.
  Notice next() {
    REQUIRE(test::run_until(loop.loop, [&] { return taken < notices.size(); }));
    return notices[taken++];
  }
  Round round() {
    handler.join();
    Notice notice = next();
    REQUIRE(std::holds_alternative<Round>(notice));
    return std::get<Round>(notice);
  }
  void fail(int exit_code) {
    handler.report_failure({.status = {.exit_code = exit_code}}, false, std::nullopt);
  }

  Loop& loop;
  SingleNodeHandler handler;
  std::vector<Notice> notices;
  std::size_t taken = 0;
};

}  // namespace

TEST_SUITE("rendezvous/single_node") {
  TEST_CASE_FIXTURE(Loop, "a run has one name in all its rounds, and no other run has it") {
    Node node(*this, {.max_restarts = 1});
    Node other(*this, {.max_restarts = 1});
    const std::string run_uuid = node.round().run_uuid;
    node.fail(1);
    CHECK(std::holds_alternative<command::Stop>(node.next()));
    CHECK(node.round().run_uuid == run_uuid);
    CHECK(other.round().run_uuid != run_uuid);
  }

  TEST_CASE_FIXTURE(Loop,
                    "each round has the whole world and a store that is empty and reachable") {
    Node node(*this, {.self = {.local_world_size = 3}, .max_restarts = 9});
    for (std::uint64_t number = 0; number < 3; ++number) {
      Round round = node.round();
      CHECK(round.number == number);
      CHECK(round.restart_count == static_cast<int>(number));
      CHECK(round.ranks.world_size == 3);
      auto client = run(store::Client::connect(loop.get_executor(), round.master));
      REQUIRE(client.has_value());
      CHECK(run((*client)->num_keys()).value() == 0);
      CHECK(run((*client)->set("k", "v")).has_value());
      node.fail(1);
      CHECK(std::holds_alternative<command::Stop>(node.next()));
    }
  }

  TEST_CASE_FIXTURE(Loop, "the run ends with success, or when its restarts are spent") {
    Node good(*this, {});
    good.round();
    good.handler.report_success();
    CHECK(std::get<command::End>(good.next()).exit_code == 0);

    Node bad(*this, {.max_restarts = 1});
    bad.round();
    bad.fail(5);
    CHECK(std::get<command::Stop>(bad.next()).restart_count == 1);
    bad.round();
    bad.fail(6);
    command::End end = std::get<command::End>(bad.next());
    CHECK(end.exit_code == command::kExitBudgetSpent);
    CHECK(end.failures.size() == 2);
  }

  TEST_CASE_FIXTURE(Loop, "the store knows who has never come to a wait that was over") {
    Node node(*this, {.self = {.local_world_size = 2}});
    Round round = node.round();
    auto client = run(store::Client::connect(loop.get_executor(), round.master));
    REQUIRE(client.has_value());
    REQUIRE(run((*client)->expect("rank 1", 4711)).has_value());
    node.handler.report_failure({.rank = 0, .pid = 30, .status = {.exit_code = 1}}, false,
                                TimedOutWait{.in = kInit});
    node.handler.report_findings({});
    command::End end = std::get<command::End>(node.next());
    REQUIRE(end.failures.size() == 1);
    CHECK(describe_suspects(end.failures.front()) ==
          "rank 1 (pid 4711) never reached init_process_group");
  }

  TEST_CASE_FIXTURE(Loop, "one worker alone is not compared with others") {
    Node one(*this, {});
    CHECK(one.handler.vitals_use() == Handler::VitalsUse::Nothing);
    Node two(*this, {.self = {.local_world_size = 2}});
    CHECK(two.handler.vitals_use() == Handler::VitalsUse::Progress);
  }

  TEST_CASE_FIXTURE(Loop, "the run shows itself from its first workers on, at one place") {
    Node node(*this, {.max_restarts = 1, .run = "job", .host = "laptop", .page = PagePortConfig{}});
    CHECK(node.handler.vitals_use() == Handler::VitalsUse::Everything);
    Round round = node.round();
    CHECK(node.handler.meeting_place().empty());
    node.handler.workers_started(round, {});
    const std::string place = node.handler.meeting_place();
    CHECK(place.starts_with("page=http://127.0.0.1:"));
    CHECK(place.ends_with("/"));
    node.fail(1);
    node.next();
    node.handler.workers_started(node.round(), {});
    CHECK(node.handler.meeting_place() == place);
  }

  TEST_CASE_FIXTURE(Loop, "a place that cannot be had costs the page only") {
    Node first(*this, {});
    const Endpoint taken = first.round().master;
    Node node(*this, {.page = PagePortConfig{.listen = taken}});
    node.handler.workers_started(node.round(), {});
    CHECK(std::get<notice::Info>(node.next()).text ==
          "this run has no page: bind " + to_string(taken) + ": Address already in use");
    CHECK(node.handler.meeting_place().empty());
    node.handler.report_success();
    CHECK(std::get<command::End>(node.next()).exit_code == 0);
  }

  TEST_CASE_FIXTURE(Loop, "without a descriptor for it there is no page, and the run goes on") {
    Node node(*this, {.page = PagePortConfig{}});
    Round round = node.round();
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int free = ::dup(STDERR_FILENO);
    REQUIRE(free > 0);
    ::close(free);
    const rlimit full{.rlim_cur = static_cast<rlim_t>(free), .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &full) == 0);
    node.handler.workers_started(round, {});
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    const std::string said = std::get<notice::Info>(node.next()).text;
    CHECK(said.starts_with("this run has no page: "));
    CHECK(said.ends_with("Too many open files"));
    CHECK(node.handler.meeting_place().empty());
  }

  TEST_CASE_FIXTURE(Loop, "a failure that is final spends no restart") {
    Node node(*this, {.max_restarts = 3});
    node.round();
    node.handler.report_failure({.status = {.exit_code = 127}}, true, std::nullopt);
    CHECK(std::get<command::End>(node.next()).exit_code == 127);
  }

  TEST_CASE_FIXTURE(Loop, "a port that was asked for is used in every round") {
    std::uint16_t port = 0;
    {
      Node first(*this, {});
      port = first.round().master.port;
    }
    Node node(*this, {.max_restarts = 1, .master = {"127.0.0.1", port}});
    CHECK(node.round().master.port == port);
    node.fail(1);
    node.next();
    CHECK(node.round().master.port == port);
  }

  TEST_CASE_FIXTURE(Loop, "any loopback address can be the workers' meeting point") {
    Node node(*this, {.master = {"127.0.0.2", 0}});
    CHECK(node.round().master.host == "127.0.0.2");
  }

  TEST_CASE_FIXTURE(Loop, "a port that is taken is named") {
    Node first(*this, {});
    std::uint16_t port = first.round().master.port;
    Node second(*this, {.master = {"127.0.0.1", port}});
    second.handler.join();
    CHECK(std::get<notice::Failed>(second.next()).why ==
          "worker store: bind 127.0.0.1:" + std::to_string(port) + ": Address already in use");
  }
}
