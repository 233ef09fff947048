// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/process_stats.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fstream>
#include <thread>

#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"
#include "worker/process/proc_files.h"
#include "worker/process/stacks.h"
#include "worker/process/sweep.h"

using namespace ddprun;
using namespace ddprun::process;
using namespace std::chrono_literals;

TEST_SUITE("worker/process/process_stats") {
  TEST_CASE("stat's times are behind a name that may hold anything") {
    ProcessStat stat = parse_stat(
        "4211 (a) b (c) S 1 4211 4211 0 -1 4194560 100 200 7 2 150 50 20 30 20 0 1 0 99", 100);
    CHECK(stat.state == 'S');
    CHECK(stat.major_faults == 9);
    CHECK(stat.cpu_time == 2500ms);
    CHECK(parse_stat("", 100).state == '?');
    CHECK(parse_stat("1 (x", 100).cpu_time == 0s);
    CHECK(parse_stat("1 (x) R 1", 100).cpu_time == 0s);
  }

  TEST_CASE("io's bytes are those that were read and written") {
    CHECK(parse_io("rchar: 300\nwchar: 20\nsyscr: 9\nsyscw: 9\nread_bytes: 4096\n") == 320);
    CHECK(parse_io("") == 0);
    CHECK(parse_io("rchar: many\n") == 0);
  }

  TEST_CASE("the number of the Slurm job is in the path of a cgroup") {
    CHECK(parse_slurm_job("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n") ==
          "123");
    CHECK(parse_slurm_job("5:cpu:/a\n4:memory:/slurm/uid_0/job_9\n0::/\n") == "9");
    CHECK(parse_slurm_job("0::/user.slice/job_x\n").empty());
    CHECK(parse_slurm_job("").empty());
  }

  TEST_CASE("the bytes of what a process has started count") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const std::uint64_t before = stats_of(::getpid()).moved_bytes;
    const std::string written(20000, 'x');
    pid_t child = ::fork();
    if (child == 0) {
      if (::write(ends[1], written.data(), written.size()) < 0) ::_exit(1);
      ::pause();
    }
    std::string taken(written.size(), '\0');
    REQUIRE(::read(ends[0], taken.data(), 1) == 1);
    CHECK(stats_of(::getpid()).moved_bytes >= before + written.size());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (int end : ends) ::close(end);
  }

  TEST_CASE("a stopped process is told from one that has gone") {
    pid_t child = ::fork();
    if (child == 0) {
      ::raise(SIGSTOP);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, WUNTRACED);
    CHECK(doing_of(child) == "stopped");
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    CHECK(doing_of(child) == "");
    CHECK(stats_of(child).cpu_time == 0s);
  }

  TEST_CASE("the CPU time of what a process has started counts") {
    auto before = stats_of(::getpid()).cpu_time;
    pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
      }
    }
    auto limit = std::chrono::steady_clock::now() + 60s;
    while (stats_of(::getpid()).cpu_time < before + 20ms &&
           std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(1ms);
    CHECK(stats_of(::getpid()).cpu_time >= before + 20ms);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  TEST_CASE("stack tools write a file each, and one that does not end is ended") {
    boost::asio::io_context loop;
    Reaper reaper(loop.get_executor());
    IoThread disk(loop.get_executor(), [](const IoThread::Stall&) {});
    StackCollector collector(reaper, disk);
    test::TempDir folder;
    bool is_done = false;
    std::vector<StackTool> tools = {{"/bin/echo", "stack of"},
                                    {"/bin/sh", "-c", "exec sleep 1000"}};
    boost::asio::co_spawn(
        loop, collector.collect(tools, {{.pid = 7, .path = folder.path() + "/stack"}}, {}, 500ms),
        [&](std::exception_ptr) { is_done = true; });
    REQUIRE(test::run_until(loop, [&] { return is_done && disk.is_idle(); }));
    auto text = [&](const char* name) {
      std::ifstream file(folder.path() + name);
      return std::string(std::istreambuf_iterator<char>(file), {});
    };
    CHECK(text("/stack.echo").starts_with("stack of 7\n"));
    CHECK(text("/stack.sh") == "(ddprun: not complete, the time for it was over)\n");
    REQUIRE(test::run_until(loop, [&] { return descendants_of(::getpid()).empty(); }));
  }
}
