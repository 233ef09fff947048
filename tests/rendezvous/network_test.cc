// SPDX-License-Identifier: BSD-3-Clause
//
// One node's side of a rendezvous, with a real store.
#include "rendezvous/network.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/clock.h"
#include "store/socket.h"
#include "tests/support/event_loop.h"
#include "tests/support/own_connections.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

namespace asio = boost::asio;

std::uint16_t free_port() {
  auto listener = store::listen_on({.host = "127.0.0.1", .port = 0});
  REQUIRE(listener.has_value());
  return store::local_port(listener->get()).value();
}

// A node that is to host, whose disk answers when the test says so.
struct HostingNode {
  asio::io_context loop{1};
  test::TempDir folder;
  std::vector<std::function<void()>> asked_of_disk;
  NetworkConfig config;
  std::vector<Notice> notices;
  std::optional<NetworkHandler> handler;

  explicit HostingNode(int nodes = 2) {
    config.endpoint = {.host = "127.0.0.1", .port = free_port()};
    config.member.run = "run";
    config.member.name = "node";
    config.member.endpoint = to_string(config.endpoint);
    config.member.node.host = "node0";
    config.member.node.settings = {.min_nodes = nodes, .max_nodes = nodes, .master = std::nullopt};
    RunFilePlace files;
    files.folders = {folder.path() + "/runs"};
    files.run = [this](const std::string&, const std::function<void()>& work,
                       std::function<void()> done) {
      work();
      asked_of_disk.push_back(std::move(done));
    };
    handler.emplace(loop.get_executor(), config, std::move(files));
    handler->listen([this](const Notice& notice) { notices.push_back(notice); });
  }

  void disk_answers() {
    for (auto& done : std::exchange(asked_of_disk, {})) asio::post(loop, std::move(done));
  }

  // The first of this kind, once the node is told.
  template <class Wanted>
  std::optional<Wanted> told() {
    std::optional<Wanted> wanted;
    test::run_until(loop, [&] {
      disk_answers();
      for (const Notice& notice : notices) {
        if (const auto* found = std::get_if<Wanted>(&notice); found && !wanted) wanted = *found;
      }
      return wanted.has_value();
    });
    return wanted;
  }

  // Whether it comes to an end.
  bool finishes() {
    bool is_done = false;
    asio::co_spawn(loop, handler->finish(), [&](std::exception_ptr error) {
      CHECK(error == nullptr);
      is_done = true;
    });
    return test::run_until(loop, [&] {
      disk_answers();
      return is_done;
    });
  }
};

struct LoneNode : HostingNode {
  LoneNode() : HostingNode(1) {}
};

}  // namespace

TEST_SUITE("rendezvous/network") {
  TEST_CASE_FIXTURE(HostingNode, "a host may be told to stop before it lets nodes in") {
    handler->join();
    REQUIRE(test::run_until(loop, [this] { return !asked_of_disk.empty(); }));
    // Its port answers already.
    for (int turn = 0; turn < 100; ++turn) loop.poll();
    handler->leave("was stopped by SIGTERM", 15);
    SUBCASE("and ends at once") {}
    SUBCASE("and opens first") {
      disk_answers();
      for (int turn = 0; turn < 100; ++turn) loop.poll();
    }
    CHECK(finishes());
  }

  TEST_CASE_FIXTURE(HostingNode, "a host may be closed at any moment of its start") {
    handler->join();
    SUBCASE("before its port is there") {}
    SUBCASE("while its disk stands still") {
      REQUIRE(test::run_until(loop, [this] { return !asked_of_disk.empty(); }));
    }
    SUBCASE("as the disk answers") {
      REQUIRE(test::run_until(loop, [this] { return !asked_of_disk.empty(); }));
      disk_answers();
    }
    handler->close();
    CHECK(finishes());
  }

  TEST_CASE_FIXTURE(HostingNode, "what is said before the agent listens it hears once it does") {
    const std::string planted = folder.path() + "/planted";
    std::ofstream(planted) << "by another user";
    config.may_stand_in = true;
    config.node_files = planted;
    handler.emplace(loop.get_executor(), config, RunFilePlace{});
    for (int turn = 0; turn < 100; ++turn) loop.poll();
    handler->listen([this](const Notice& notice) { notices.push_back(notice); });
    std::optional<notice::Info> info = told<notice::Info>();
    REQUIRE(info.has_value());
    CHECK(info->text.starts_with(planted + " is no folder of this user's alone"));
    CHECK(finishes());
  }

  TEST_CASE_FIXTURE(LoneNode,
                    "a host whose coordinator fails says so, and its workers have to end") {
    handler->join();
    REQUIRE(told<Round>().has_value());
    test::cut_own_connections();
    std::optional<notice::Failed> failed = told<notice::Failed>();
    REQUIRE(failed.has_value());
    CHECK(failed->why.find("the rendezvous that this node hosts at 127.0.0.1:") == 0);
    CHECK(failed->why.find(" has failed: the coordinator cannot ") != std::string::npos);
    std::optional<notice::LeaseEnding> lease = told<notice::LeaseEnding>();
    REQUIRE(lease.has_value());
    CHECK(lease->kill_by <= mono_now() + config.member.node.policy.silence_limit());
    CHECK(finishes());
  }
}
