// SPDX-License-Identifier: BSD-3-Clause
#include "agent/worker_group.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/decide/messages.h"
#include "store/clock.h"
#include "tests/support/event_loop.h"
#include "worker/process/console.h"
#include "worker/process/io_thread.h"
#include "worker/process/reaper.h"

using namespace ddprun;
using namespace std::chrono_literals;

TEST_SUITE("agent/worker_group") {
  TEST_CASE("a worker that is made ready when the lease is over is started once there is another") {
    boost::asio::io_context loop;
    process::Reaper reaper(loop.get_executor());
    process::Console out(loop.get_executor(), STDOUT_FILENO);
    process::Console err(loop.get_executor(), STDERR_FILENO);
    process::IoThread disk(loop.get_executor(), nullptr);
    MonoTime lease_end = mono_now() - 1s;  // the disk stood still, or this process
    agent::WorkerGroup group(loop.get_executor(), reaper, {out, err}, disk,
                             {.command = {"/bin/true"},
                              .routes = {{}},
                              .placements = {{}},
                              .lease_end = [&] { return lease_end; },
                              .has_log_dir = false});
    std::optional<int> exit_code;
    bool is_started = false;
    group.listen([&](const agent::WorkerExit& exit) { exit_code = exit.status.shell_code(); },
                 [](const std::string&) {}, [](const std::string&) {});
    rendezvous::command::Round round{.master = {.host = "localhost", .port = 1}};
    round.ranks.world_size = round.ranks.group_world_size = round.ranks.role_world_size = 1;
    group.start(round, 0, [&](const auto& failure) { is_started = !failure; });
    loop.run_for(200ms);
    CHECK_FALSE(is_started);
    CHECK(group.running().empty());
    SUBCASE("and runs") {
      lease_end = mono_now() + 1h;
      REQUIRE(test::run_until(loop, [&] { return exit_code.has_value(); }));
      CHECK(is_started);
      CHECK(*exit_code == 0);
    }
    SUBCASE("unless the round has been stopped meanwhile") {
      group.stop_starting();
      lease_end = mono_now() + 1h;
      loop.restart();
      loop.run_for(200ms);
      CHECK(group.started().empty());
    }
  }
}
