// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_dir.h"
#include "worker/process/marks.h"
#include "worker/process/pidfd.h"
#include "worker/process/sweep.h"

using namespace ddprun;
using namespace ddprun::process;

TEST_SUITE("worker/process/guardian") {
  TEST_CASE("a guardian that was killed is replaced") {
    Result<Guardian> guardian = Guardian::start({.name = "1-1", .queue_limit = std::nullopt});
    REQUIRE(guardian.has_value());
    int first = guardian->pid();
    ::kill(first, SIGKILL);
    REQUIRE(::waitpid(first, nullptr, 0) == first);
    REQUIRE(guardian->start_again().has_value());
    CHECK(guardian->pid() != first);
    CHECK(::kill(guardian->pid(), 0) == 0);
    int second = guardian->pid();
    { Guardian gone = std::move(*guardian); }
    CHECK(::waitpid(second, nullptr, 0) == second);
  }
}

TEST_SUITE("worker/process/pidfd") {
  TEST_CASE("a signal goes to the process that was opened, or nowhere") {
    pid_t pid = ::fork();
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
    Fd process = open_pidfd(pid);
    REQUIRE(process);
    send_signal(process, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(WTERMSIG(status) == SIGKILL);
    send_signal(process, SIGKILL);  // nobody has the number now, or another process
    CHECK_FALSE(open_pidfd(pid));
  }
}

TEST_SUITE("worker/process/sweep: obstacles") {
  TEST_CASE("a /proc with other numbers, and a kernel without lists of children, are named") {
    test::TempDir proc;
    std::string self = proc.path() + "/self";
    std::filesystem::create_symlink("1", self);
    CHECK(obstacle_to_sweep(proc.path()).find("namespace of process ids") != std::string::npos);
    std::filesystem::remove(self);
    std::filesystem::create_symlink(std::to_string(::getpid()), self);
    CHECK(obstacle_to_sweep(proc.path()) == "this kernel lacks CONFIG_PROC_CHILDREN");
    CHECK(obstacle_to_sweep() == "");
  }
}

TEST_SUITE("worker/process/marks") {
  TEST_CASE("a mark is one of a list, whole, in the right variable") {
    const std::string text("PATH=/bin\0DDPRUN_AGENT=12-9,34-7\0X=5-1\0", 39);
    CHECK(has_mark(text, "34-7"));
    CHECK(has_mark(text, "12-9"));
    CHECK_FALSE(has_mark(text, "4-7"));
    CHECK_FALSE(has_mark(text, "34-"));
    CHECK_FALSE(has_mark(text, "5-1"));
    CHECK_FALSE(has_mark("", "5-1"));
    CHECK(has_mark("DDPRUN_AGENT=1-2", "1-2"));
  }

  TEST_CASE("the second mark is a soft limit") {
    CHECK(parse_queue_limit("Limit   Soft Limit  Hard Limit  Units\n"
                            "Max msgqueue size         700123               819200      bytes\n") ==
          700123);
    CHECK_FALSE(parse_queue_limit("Max msgqueue size         unlimited   unlimited   bytes\n"));
    CHECK_FALSE(parse_queue_limit("Max msgqueue size"));
    CHECK_FALSE(parse_queue_limit(""));
  }
}
