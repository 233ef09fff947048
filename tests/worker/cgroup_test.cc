// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/cgroup.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "tests/support/base_cgroup.h"
#include "tests/support/event_loop.h"
#include "worker/process/proc_files.h"
#include "worker/process/reaper.h"
#include "worker/process/spawn.h"

using namespace ddprun;
using namespace ddprun::process;

TEST_SUITE("worker/cgroup") {
  TEST_CASE("the own cgroup is that of version 2") {
    CHECK(parse_own_cgroup("4:memory:/a\n0::/user.slice/x\n") == "/user.slice/x");
    CHECK(parse_own_cgroup("0::/\n") == "/");
    CHECK_FALSE(parse_own_cgroup("4:memory:/a\n"));
    CHECK_FALSE(parse_own_cgroup(""));
  }

  TEST_CASE("where none can be made the reason is told") {
    auto leaf = CgroupLeaf::create("/no/such/folder", "0");
    REQUIRE_FALSE(leaf.has_value());
    CHECK(leaf.error().code.value() == ENOENT);
  }

  TEST_CASE("a worker and all that it starts are in the leaf, and end by one write") {
    test::BaseCgroup base;
    if (!base.is_there()) return;
    boost::asio::io_context loop;
    Reaper reaper(loop.get_executor());
    REQUIRE(Reaper::become_subreaper().has_value());
    {
      auto leaf = CgroupLeaf::create(base.path, "0-0");
      REQUIRE(leaf.has_value());
      auto process =
          spawn({.argv = {"/bin/sh", "-c", "(setsid sleep 1000 &); setsid sleep 1000 & wait"},
                 .environment = {"PATH=/usr/bin:/bin"},
                 .cgroup = leaf->path()});
      REQUIRE(process.has_value());
      std::optional<ExitStatus> ended;
      reaper.watch(std::move(*process), [&](ExitStatus status) { ended = status; });
      auto count = [&] {
        std::ifstream procs(leaf->path() + "/cgroup.procs");
        return std::distance(std::istream_iterator<int>(procs), {});
      };
      REQUIRE(test::run_until(loop, [&] { return count() >= 3; }));
      leaf->kill();
      REQUIRE(test::run_until(loop, [&] { return ended.has_value(); }));
      CHECK(ended->signal == SIGKILL);
      REQUIRE(test::run_until(loop, [&] {
        reaper.reap_strangers();
        return count() == 0;
      }));
    }
    CHECK_FALSE(base.has_leaf("0-0"));
  }

  TEST_CASE("torch's manager of shared memory survives it, and does not keep the leaf") {
    test::BaseCgroup base;
    if (!base.is_there()) return;
    boost::asio::io_context loop;
    Reaper reaper(loop.get_executor());
    pid_t manager = -1;
    {
      auto leaf = CgroupLeaf::create(base.path, "0-1");
      REQUIRE(leaf.has_value());
      auto process = spawn(
          {.argv = {"/bin/sh", "-c", "printf torch_shm_manager > /proc/$$/comm; kill -STOP $$"},
           .environment = {"PATH=/usr/bin:/bin"},
           .cgroup = leaf->path()});
      REQUIRE(process.has_value());
      manager = process->pid;
      std::optional<ExitStatus> ended;
      reaper.watch(std::move(*process), [&](ExitStatus status) { ended = status; });
      REQUIRE(test::run_until(loop, [&] { return is_shm_manager(program_name_of(manager)); }));
      leaf->kill();
      REQUIRE(::kill(manager, SIGTERM) == 0);
      REQUIRE(::kill(manager, SIGCONT) == 0);
      REQUIRE(test::run_until(loop, [&] { return ended.has_value(); }));
      CHECK(ended->signal == SIGTERM);
    }
    CHECK_FALSE(base.has_leaf("0-1"));
  }
}
