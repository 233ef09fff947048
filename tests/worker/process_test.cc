// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "store/base/fd.h"
#include "tests/support/temp_dir.h"
#include "tests/support/workers.h"
#include "worker/process/close_from.h"

using namespace ddprun;
using namespace ddprun::process;
using ddprun::test::Workers;
using namespace std::chrono_literals;

// As qemu-user does.
static bool refuse_clone_pidfd() {
  constexpr auto kFlags = offsetof(seccomp_data, args);  // their lower half
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFlags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PIDFD, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// As an older container's filter of system calls does.
static bool refuse_close_range() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_SUITE("worker/process") {
  TEST_CASE_FIXTURE(Workers, "how a process ended is told in words") {
    CHECK(run("exit 0") == "exited with code 0");
    CHECK(run("exit 9") == "exited with code 9");
    CHECK(run("kill -KILL $$") == "was killed by SIGKILL");
    CHECK(status_of(start("kill -SEGV $$")).shell_code() == 139);
  }

  TEST_CASE_FIXTURE(Workers,
                    "a program that cannot be executed is a failure of spawn, with the reason") {
    auto process = spawn({.argv = {"/no/such/program"}});
    REQUIRE(process.has_error());
    CHECK(to_string(process.error()) == "start /no/such/program: No such file or directory");
    std::ofstream(folder.path() + "/data") << "text";
    process = spawn({.argv = {folder.path() + "/data"}});
    REQUIRE(process.has_error());
    CHECK(to_string(process.error()).ends_with("/data: Permission denied"));
  }

  TEST_CASE("descriptors are closed also where the system refuses close_range") {
    enum Outcome { kClosed = 3, kNoFilter, kNotRefused, kLeftOpen, kClosedTooMuch, kNotStarted };
    pid_t tester = ::fork();
    if (tester == 0) {
      if (!refuse_close_range()) ::_exit(kNoFilter);
      if (::syscall(SYS_close_range, 900U, 900U, 0U) == 0) ::_exit(kNotRefused);
      for (int fd : {50, 51, 199}) ::dup2(STDIN_FILENO, fd);
      auto process = spawn({.argv = {"/bin/sh", "-c", "[ ! -e /proc/self/fd/199 ]"}});
      if (!process) ::_exit(kNotStarted);
      siginfo_t info = {};
      auto pidfd = static_cast<id_t>(process->pidfd.get());
      bool is_seen = ::waitid(P_PIDFD, pidfd, &info, WEXITED) == 0 && info.si_status == 0;
      if (!is_seen) ::_exit(kLeftOpen);
      close_from(51);
      if (::fcntl(50, F_GETFD) < 0) ::_exit(kClosedTooMuch);
      ::_exit(::fcntl(51, F_GETFD) < 0 && ::fcntl(199, F_GETFD) < 0 ? kClosed : kLeftOpen);
    }
    int status = 0;
    REQUIRE(::waitpid(tester, &status, 0) == tester);
    if (status == kNoFilter << 8) return;  // this system takes no filter
    CHECK(status == kClosed << 8);
  }

  TEST_CASE("a worker is started, and its end is seen, where clone gives no pidfd") {
    enum Outcome { kSeen = 3, kNoFilter, kPidfdOfClone, kNotStarted, kWrongEnd };
    pid_t tester = ::fork();
    if (tester == 0) {
      if (!refuse_clone_pidfd()) ::_exit(kNoFilter);
      int fd = -1;
      if (::syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &fd, nullptr, nullptr) >= 0)
        ::_exit(kPidfdOfClone);
      auto process = spawn({.argv = {"/bin/sh", "-c", "exit 9"}});
      if (!process) ::_exit(kNotStarted);
      siginfo_t info = {};
      auto pidfd = static_cast<id_t>(process->pidfd.get());
      bool is_seen = ::waitid(P_PIDFD, pidfd, &info, WEXITED) == 0 && info.si_status == 9;
      ::_exit(is_seen && info.si_pid == process->pid ? kSeen : kWrongEnd);
    }
    int status = 0;
    REQUIRE(::waitpid(tester, &status, 0) == tester);
    if (status == kNoFilter << 8) return;  // this system takes no filter
    CHECK(status == kSeen << 8);
  }

  TEST_CASE_FIXTURE(
      Workers, "a worker leads its own session, with its own environment and no stray descriptor") {
    int stray = ::open("/dev/null", O_RDONLY);  // not close-on-exec, like a library's
    Process process =
        start("ps -o sid= -p $$ | tr -d ' '; echo $GREETING; ls /proc/self/fd | wc -l");
    pid_t pid = process.pid;
    CHECK(status_of(std::move(process)).is_success());
    ::close(stray);
    // ls itself has 0, 1, 2 and the folder open.
    CHECK(output() == std::to_string(pid) + "\nhello\n4\n");
  }

  TEST_CASE_FIXTURE(Workers,
                    "a worker starts with no signal blocked and none ignored by the agent") {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    CHECK(run("grep -E 'SigBlk|SigIgn' /proc/self/status") == "exited with code 0");
    ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
    CHECK(output().find("SigBlk:\t0000000000000000") != std::string::npos);
    CHECK(output().find("SigIgn:\t0000000000000000") != std::string::npos);
  }

  TEST_CASE_FIXTURE(Workers, "a worker runs on the CPUs that it is given") {
    CHECK(run("grep Cpus_allowed_list /proc/self/status | grep -o '[0-9]*' | tail -n 1") ==
          "exited with code 0");
    int last = std::stoi(output());  // the last that we may run on
    Fd log(::open(output_path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    auto process = spawn({.argv = {"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status >&2"},
                          .environment = {"PATH=/usr/bin:/bin"},
                          .stderr_fd = log.get(),
                          .cpus = {last}});
    REQUIRE(process.has_value());
    CHECK(status_of(std::move(*process)).is_success());
    CHECK(output() == "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
    process = spawn({.argv = {"/bin/true"}, .cpus = {1'000'000}});
    REQUIRE(process.has_error());
    CHECK(to_string(process.error()) == "start /bin/true: Invalid argument");
  }

  TEST_CASE_FIXTURE(Workers, "a worker has the descriptor limit that this process began with") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit changed = before;
    changed.rlim_cur = before.rlim_cur - 1;  // as a store raises it
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &changed) == 0);
    std::string outcome = run("ulimit -n");
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(outcome == "exited with code 0");
    CHECK(output() == std::to_string(before.rlim_cur) + "\n");
  }

  TEST_CASE_FIXTURE(Workers, "a coroutine waits for an end, and not beyond its limit") {
    auto ended = [this](Process process, MonoTime limit) {
      std::optional<std::optional<ExitStatus>> result;
      boost::asio::co_spawn(
          loop, reaper.ended(std::move(process), limit),
          [&](std::exception_ptr, std::optional<ExitStatus> status) { result.emplace(status); });
      REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
      return *result;
    };
    auto status = ended(start("exit 9"), MonoTime::max());
    REQUIRE(status);
    CHECK(status->exit_code == 9);
    Process slow = start("exec sleep 1000");
    pid_t pid = slow.pid;
    CHECK_FALSE(ended(std::move(slow), std::chrono::steady_clock::now()));
    REQUIRE(::kill(pid, SIGKILL) == 0);
    CHECK(test::run_until(loop, [&] { return ::kill(pid, 0) != 0; }));
  }

  TEST_CASE_FIXTURE(Workers, "many exits at once are each reported once") {
    int ended = 0;
    for (int i = 0; i < 64; ++i) {
      reaper.watch(start("exit 0"),
                   [&](ExitStatus status) { ended += status.is_success() ? 1 : 0; });
    }
    CHECK(test::run_until(loop, [&] { return ended == 64; }));
  }

  TEST_CASE_FIXTURE(Workers,
                    "a debugger that holds a dead worker does not hold the event loop up") {
    Process process = start("exec sleep 1000");
    pid_t pid = process.pid;
    int said[2], let_go[2];
    REQUIRE(::pipe2(said, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(let_go, O_CLOEXEC) == 0);
    if (::fork() == 0) {  // the debugger: it attaches, says so, and stays until it is let go
      ::signal(SIGCHLD, SIG_DFL);  // the end of the worker is not to wake it
      ::close(let_go[1]);
      char answer = ::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0 ? 'y' : 'n';
      bool is_said = ::write(said[1], &answer, 1) == 1;
      if (is_said) (void)!::read(let_go[0], &answer, 1);
      ::_exit(0);
    }
    char answer = 0;
    REQUIRE(::read(said[0], &answer, 1) == 1);
    std::optional<ExitStatus> status;
    Fd pidfd(::fcntl(process.pidfd.get(), F_DUPFD_CLOEXEC, 0));
    reaper.watch(std::move(process), [&](ExitStatus ended) { status = ended; });
    ::kill(pid, SIGKILL);
    if (answer == 'y') {
      pollfd dead = {.fd = pidfd.get(), .events = POLLIN, .revents = 0};
      REQUIRE(::poll(&dead, 1, 20'000) == 1);
      loop.run_for(50ms);
      CHECK_FALSE(status.has_value());
      CHECK(run("exit 7") == "exited with code 7");  // others are collected meanwhile
      CHECK_FALSE(status.has_value());
    } else {
      MESSAGE("no process may be traced here");
    }
    ::close(let_go[1]);
    REQUIRE(test::run_until(loop, [&] { return status.has_value(); }));
    CHECK(to_string(*status) == "was killed by SIGKILL");
    for (int fd : {said[0], said[1], let_go[0]}) ::close(fd);
  }

  TEST_CASE("a name without a slash is looked up in PATH") {
    CHECK(find_program("sh", "/nowhere:/usr/bin:/bin").value().ends_with("bin/sh"));
    CHECK(to_string(find_program("no-such-program", "/usr/bin:/bin").error()) ==
          "program 'no-such-program' was not found in PATH");
  }

  TEST_CASE("a name with a slash is that file, which must be one that can be executed") {
    auto why_not = [](const std::string& name) {
      return to_string(find_program(name, "/bin").error());
    };
    CHECK(find_program("/bin/sh", "").value() == "/bin/sh");
    CHECK(why_not("/no/such/program") == "program '/no/such/program' does not exist");
    CHECK(why_not("/bin/") == "program '/bin/' is a folder");
    CHECK(why_not("/bin/sh/x") == "program '/bin/sh/x' cannot be run: Not a directory");
    CHECK(why_not("/etc/passwd") ==
          "program '/etc/passwd' cannot be executed: Permission denied; chmod +x makes a file "
          "executable");
  }

  TEST_CASE("of a script the program that its first line names must be there") {
    test::TempDir folder;
    const std::string script = folder.path() + "/train";
    auto why_not = [&](const std::string& first_line, const std::string& name) {
      std::ofstream(script) << first_line << "\nexit\n";
      ::chmod(script.c_str(), 0700);
      auto found = find_program(name, folder.path());
      return found ? "" : to_string(found.error());
    };
    for (const std::string& name : {script, std::string("train")}) {
      CHECK(why_not("#!/bin/sh", name) == "");
      CHECK(why_not("#! /bin/sh -e", name) == "");
      CHECK(why_not("#!", name) == "");
      CHECK(why_not("echo", name) == "");
      CHECK(why_not("#!/no/such -e", name) ==
            "program '" + script +
                "' cannot be run: its first line names /no/such, which does not exist");
      for (const char* line : {"#!/bin/sh\r", "#!/usr/bin/env sh\r", "#!/no/such -e\r"}) {
        CHECK(why_not(line, name) ==
              "program '" + script +
                  "' cannot be run: its first line ends with a carriage return, as Windows writes "
                  "it; sed -i 's/\\r$//' makes it a script");
      }
      CHECK(why_not("#!/usr/bin/env -S sh -e\r", name) == "");
    }
  }
}

TEST_SUITE("worker/process/sweep") {
  TEST_CASE_FIXTURE(Workers, "nothing left behind: done at once") {
    REQUIRE(Reaper::become_subreaper().has_value());
    CHECK(run("exit 0") == "exited with code 0");
    CHECK(swept(std::chrono::steady_clock::now() + 20s).found.empty());
  }

  TEST_CASE_FIXTURE(Workers, "a double fork into a session of its own is found and ended") {
    REQUIRE(Reaper::become_subreaper().has_value());
    CHECK(run("setsid sh -c 'sleep 1000 & echo ready; wait' & exit 0") == "exited with code 0");
    wait_for_output("ready");
    SweepResult result = swept(std::chrono::steady_clock::now() + 20s);
    CHECK(result.found.size() == 2);
    CHECK(result.stuck.empty());
    CHECK(descendants().empty());
  }

  // As what a template forks on its way: its session cannot be asked for any more.
  TEST_CASE_FIXTURE(Workers, "what is spared and ends during a look has not been left behind") {
    REQUIRE(Reaper::become_subreaper().has_value());
    auto forks = start("i=0; while [ $i -lt 3000 ]; do (:); i=$((i + 1)); done");
    const SweepScope scope = {.spared = {forks.pid}, .spared_sessions = {forks.pid}};
    std::optional<ExitStatus> ended;
    reaper.watch(std::move(forks), [&](ExitStatus status) { ended = status; });
    while (!ended) {
      CHECK(swept(std::chrono::steady_clock::now() + 20s, scope).found.empty());
    }
  }

  TEST_CASE_FIXTURE(Workers, "what a spared process has not collected is not waited for") {
    REQUIRE(Reaper::become_subreaper().has_value());
    auto spared = start("(exit 0) & echo started; exec sleep 1000");  // sleep collects nothing
    wait_for_output("started");
    const SweepScope scope = {.spared = {spared.pid}, .spared_sessions = {spared.pid}};
    const MonoTime deadline = std::chrono::steady_clock::now() + 20s;
    SweepResult result = swept(deadline, scope);
    CHECK(result.found.empty());
    CHECK(std::chrono::steady_clock::now() < deadline);
    ::kill(spared.pid, SIGKILL);
    CHECK(status_of(std::move(spared)).signal == SIGKILL);
  }

  TEST_CASE_FIXTURE(Workers, "what ignores SIGTERM, or is stopped, is killed at the deadline") {
    REQUIRE(Reaper::become_subreaper().has_value());
    CHECK(run("(trap '' TERM; echo deaf; while :; do sleep 1000; done) & "
              "sh -c 'kill -STOP $$' & exit 0") == "exited with code 0");
    wait_for_output("deaf");
    SweepResult result = swept(std::chrono::steady_clock::now() + 50ms);
    CHECK(result.found.size() >= 2);
    CHECK(result.stuck.empty());
    CHECK(descendants().empty());
  }
}
