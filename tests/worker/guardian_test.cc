// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/guardian.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/base_cgroup.h"
#include "tests/support/temp_dir.h"
#include "worker/process/marks.h"
#include "worker/process/pidfd.h"
#include "worker/process/proc_files.h"
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
    CHECK(::kill(second, 0) != 0);
  }

  TEST_CASE("no guardian is left behind, not even one that stands still") {
    int pid = -1;
    {
      Result<Guardian> guardian = Guardian::start({.name = "1-1", .queue_limit = std::nullopt});
      REQUIRE(guardian.has_value());
      pid = guardian->pid();
      ::kill(pid, SIGSTOP);
      int status = 0;
      REQUIRE(::waitpid(pid, &status, WUNTRACED) == pid);
    }
    CHECK(::kill(pid, 0) != 0);
  }

  // Sleeps with a limit by which a guardian knows it.
  pid_t start_marked(rlim_t mark, const char* name = nullptr) {
    pid_t pid = ::fork();
    if (pid == 0) {
      if (name != nullptr) ::prctl(PR_SET_NAME, name);
      ::alarm(60);
      ::pause();
      ::_exit(0);
    }
    struct rlimit limit = {.rlim_cur = mark, .rlim_max = mark};
    CHECK(::prlimit(pid, RLIMIT_MSGQUEUE, &limit, nullptr) == 0);  // it may not have run yet
    return pid;
  }

  // After a SIGCONT to it, with which the kernel forgets the stop before.  A wait for WCONTINUED in
  // between may be one for ever: the next stop takes that away.
  bool is_stopped_anew(pid_t pid) {
    int status = 0;
    return ::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
  }

  TEST_CASE("workers that are held do not run again once the others have given the node up") {
    using std::chrono::steady_clock;
    const rlim_t mark = 100'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-3", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    pid_t marked = start_marked(mark);
    const MonoTime end = steady_clock::now() + std::chrono::seconds(2);
    guardian->renew_lease(end, std::chrono::minutes(1));
    int status = 0;
    ::kill(guardian->pid(), SIGSTOP);
    REQUIRE(::waitpid(guardian->pid(), &status, WUNTRACED) == guardian->pid());
    std::this_thread::sleep_until(end + std::chrono::seconds(1));  // it has slept past the end
    ::kill(guardian->pid(), SIGCONT);
    REQUIRE(::waitpid(marked, &status, WUNTRACED) == marked);
    REQUIRE(WIFSTOPPED(status));
    // Who continues all processes may come to this one last.
    ::kill(marked, SIGCONT);
    REQUIRE(is_stopped_anew(marked));
    guardian->renew_lease(steady_clock::now(), std::chrono::minutes(1));
    REQUIRE(::waitpid(marked, &status, WCONTINUED) == marked);
    CHECK_FALSE(WIFCONTINUED(status));
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    ::kill(marked, SIGKILL);
  }

  // Until a guardian that has slept past the end of the lease holds `marked`.
  void let_it_hold(Guardian & guardian, pid_t marked, Duration patience) {
    const MonoTime end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    guardian.renew_lease(end, patience);
    int status = 0;
    ::kill(guardian.pid(), SIGSTOP);
    REQUIRE(::waitpid(guardian.pid(), &status, WUNTRACED) == guardian.pid());
    std::this_thread::sleep_until(end + std::chrono::seconds(1));
    ::kill(guardian.pid(), SIGCONT);
    REQUIRE(::waitpid(marked, &status, WUNTRACED) == marked);
    REQUIRE(WIFSTOPPED(status));
  }

  TEST_CASE("torch's manager of shared memory is neither held nor killed") {
    using std::chrono::steady_clock;
    const rlim_t mark = 150'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-9", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    pid_t manager = start_marked(mark, "torch_shm_manager");
    const MonoTime limit = steady_clock::now() + std::chrono::seconds(20);
    while (!is_shm_manager(program_name_of(manager)) && steady_clock::now() < limit)
      std::this_thread::yield();
    pid_t marked = start_marked(mark);  // a later pid, and so signalled after the manager would be
    let_it_hold(*guardian, marked, std::chrono::minutes(1));
    int status = 0;
    CHECK(::waitpid(manager, &status, WUNTRACED | WNOHANG) == 0);
    guardian->renew_lease(steady_clock::now(), std::chrono::minutes(1));
    REQUIRE(::waitpid(marked, &status, 0) == marked);
    CHECK(::waitpid(manager, &status, WUNTRACED | WNOHANG) == 0);
    ::kill(manager, SIGKILL);
    ::waitpid(manager, nullptr, 0);
  }

  TEST_CASE("what a killed guardian held goes on under the next one") {
    const rlim_t mark = 200'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-4", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    pid_t marked = start_marked(mark);
    let_it_hold(*guardian, marked, std::chrono::minutes(1));
    int former = guardian->pid();
    ::kill(former, SIGKILL);
    REQUIRE(::waitpid(former, nullptr, 0) == former);
    guardian->renew_lease(std::chrono::steady_clock::now() + std::chrono::minutes(1), {});
    REQUIRE(guardian->start_again().has_value());
    int status = 0;
    REQUIRE(::waitpid(marked, &status, WCONTINUED) == marked);
    CHECK(WIFCONTINUED(status));
    ::kill(marked, SIGKILL);
    ::waitpid(marked, nullptr, 0);
  }

  TEST_CASE("a guardian holds however many there are") {
    constexpr int kMany = 70;
    const rlim_t mark = 300'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-5", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    std::vector<pid_t> marked;
    for (int i = 0; i < kMany; ++i) marked.push_back(start_marked(mark));
    let_it_hold(*guardian, marked.back(), std::chrono::minutes(1));
    for (pid_t pid : marked) ::kill(pid, SIGCONT);
    for (pid_t pid : marked) CHECK(is_stopped_anew(pid));
    for (pid_t pid : marked) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  TEST_CASE("a worker that is forked after the end of the lease is killed, too") {
    const rlim_t mark = 400'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-6", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    const MonoTime end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    guardian->renew_lease(end, {});
    pid_t first = start_marked(mark);
    int status = 0;
    REQUIRE(::waitpid(first, &status, 0) == first);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    std::this_thread::sleep_until(end + std::chrono::seconds(1));  // it has found nothing since
    pid_t late = start_marked(mark);
    REQUIRE(::waitpid(late, &status, 0) == late);
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  }

  TEST_CASE("a Slurm job that a worker has submitted is another's") {
    test::BaseCgroup base;
    if (!base.is_there()) return;
    const std::string job = base.path + "/job_7";  // as Slurm's plug-in for cgroups makes them
    REQUIRE(std::filesystem::create_directory(job));
    const rlim_t mark = 450'000 + static_cast<rlim_t>(::getpid());
    Result<Guardian> guardian = Guardian::start({.name = "1-8", .queue_limit = mark});
    REQUIRE(guardian.has_value());
    pid_t submitted = start_marked(mark);
    std::ofstream(job + "/cgroup.procs") << submitted;
    pid_t worker = start_marked(mark);
    guardian->renew_lease(std::chrono::steady_clock::now() + std::chrono::milliseconds(100), {});
    int status = 0;
    REQUIRE(::waitpid(worker, &status, 0) == worker);
    // Those with lower numbers have had their turn.
    CHECK(::waitpid(submitted, &status, WNOHANG) == 0);
    ::kill(submitted, SIGKILL);
    ::waitpid(submitted, nullptr, 0);
    std::filesystem::remove(job);
  }

  // An agent with a guardian, both nobody's, is killed.  Returns when the guardian has gone.
  void kill_agent(rlim_t mark, const std::string& word_path, const std::string& later = "") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t agent = ::fork();
    if (agent == 0) {
      constexpr uid_t kNobody = 65534;
      if (::setuid(kNobody) != 0) ::_exit(1);
      auto guardian =
          Guardian::start({.name = "1-2", .queue_limit = mark},
                          [&](std::string_view word) { std::ofstream(word_path) << word; });
      if (!guardian) ::_exit(1);
      guardian->leave_last_word("all are dead");
      if (!later.empty()) guardian->leave_last_word(later);
      int pid = guardian->pid();
      if (::write(ends[1], &pid, sizeof pid) < 0) ::_exit(1);
      ::pause();
    }
    int guardian = -1;
    REQUIRE(::read(ends[0], &guardian, sizeof guardian) == sizeof guardian);
    for (int end : ends) ::close(end);
    Fd process = open_pidfd(guardian);
    ::kill(agent, SIGKILL);
    ::waitpid(agent, nullptr, 0);
    pollfd polled{.fd = process.get(), .events = POLLIN, .revents = 0};
    constexpr int kLimit = 60'000;
    REQUIRE(::poll(&polled, 1, kLimit) == 1);
  }

  TEST_CASE("a last word for which the pipe had no room comes with a later renewal") {
    test::TempDir folder;
    const std::string word_path = folder.path() + "/word";
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_t agent = ::fork();
    if (agent == 0) {
      auto guardian =
          Guardian::start({.name = "1-4", .queue_limit = std::nullopt},
                          [&](std::string_view word) { std::ofstream(word_path) << word; });
      if (!guardian) ::_exit(1);
      guardian->leave_last_word("old");
      const std::filesystem::path pipe = "/proc/" + std::to_string(guardian->pid()) + "/fd/0";
      const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/fd/0");
      std::error_code none;
      while (std::filesystem::read_symlink(pipe, none) == own) std::this_thread::yield();
      Fd look(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
      ::kill(guardian->pid(), SIGSTOP);
      int status = 0;
      if (::waitpid(guardian->pid(), &status, WUNTRACED) != guardian->pid()) ::_exit(1);
      auto renew = [&] { guardian->renew_lease(MonoTime::max(), std::chrono::minutes(1)); };
      for (int times = 0; times < 10'000; ++times) renew();  // more than a pipe holds
      guardian->leave_last_word("new");
      ::kill(guardian->pid(), SIGCONT);
      for (int waiting = 1; waiting > 0; std::this_thread::yield()) {
        if (::ioctl(look.get(), FIONREAD, &waiting) != 0) ::_exit(1);
      }
      renew();
      int pid = guardian->pid();
      ::_exit(::write(ends[1], &pid, sizeof pid) == sizeof pid ? 0 : 1);
    }
    ::close(ends[1]);
    int status = 0;
    REQUIRE(::waitpid(agent, &status, 0) == agent);
    REQUIRE(status == 0);
    int guardian = -1;
    REQUIRE(::read(ends[0], &guardian, sizeof guardian) == sizeof guardian);
    Fd process = open_pidfd(guardian);
    pollfd polled{.fd = process.get(), .events = POLLIN, .revents = 0};
    if (process) REQUIRE(::poll(&polled, 1, 60'000) == 1);
    ::close(ends[0]);
    std::ifstream word(word_path);
    CHECK(std::string(std::istreambuf_iterator<char>(word), {}) == "new");
  }

  TEST_CASE("a guardian says that all are dead only if they are") {
    if (::getuid() != 0) return;  // what nobody's guardian cannot end stands for a D state
    test::TempDir folder;
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    const std::string word = folder.path() + "/word";
    const rlim_t mark = 100'000 + static_cast<rlim_t>(::getpid());
    pid_t marked = start_marked(mark);
    kill_agent(mark, word);
    CHECK_FALSE(std::filesystem::exists(word));
    ::kill(marked, SIGKILL);
    ::waitpid(marked, nullptr, 0);
    kill_agent(mark, word);
    CHECK(std::filesystem::exists(word));
  }

  TEST_CASE("a word that is too long replaces the one before, which is not true any more") {
    if (::getuid() != 0) return;
    test::TempDir folder;
    std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
    const std::string word = folder.path() + "/word";
    const rlim_t mark = 100'000 + static_cast<rlim_t>(::getpid());
    kill_agent(mark, word, std::string(Guardian::kMaxLastWord, 'x'));
    CHECK(std::filesystem::file_size(word) == Guardian::kMaxLastWord);
    std::filesystem::remove(word);
    kill_agent(mark, word, std::string(Guardian::kMaxLastWord + 1, 'x'));
    CHECK_FALSE(std::filesystem::exists(word));
  }
}

TEST_SUITE("worker/process/pidfd") {
  TEST_CASE("a signal goes to the process that was opened, or nowhere") {
    pid_t pid = ::fork();
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
    SignalTarget process(pid);
    REQUIRE(process.pidfd());
    process.send(SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(WTERMSIG(status) == SIGKILL);
    process.send(SIGKILL);  // nobody has the number now, or another process
    CHECK_FALSE(open_pidfd(pid));
  }
}

TEST_SUITE("worker/process/pidfd: none") {
  // As old seccomp profiles of containers do.
  bool forbid_pidfd() {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program{.len = std::size(code), .filter = code};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

  TEST_CASE("where no pidfd is to be had, the start time shows whose the number is") {
    enum Outcome { kKilled, kNoFilter, kStillThere };
    pid_t tester = ::fork();
    if (tester == 0) {
      if (!forbid_pidfd()) ::_exit(kNoFilter);
      pid_t pid = ::fork();
      if (pid == 0) {
        ::alarm(60);
        ::pause();
        ::_exit(0);
      }
      SignalTarget process(pid);
      process.send(SIGKILL);
      int status = 0;
      bool is_killed = ::waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGKILL;
      process.send(SIGKILL);
      ::_exit(is_killed && !process.pidfd() ? kKilled : kStillThere);
    }
    int status = 0;
    REQUIRE(::waitpid(tester, &status, 0) == tester);
    if (WEXITSTATUS(status) == kNoFilter) return;
    CHECK(status == kKilled << 8);
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
