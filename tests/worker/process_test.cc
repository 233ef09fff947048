// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/support/event_loop.h"
#include "tests/support/temp_dir.h"
#include "worker/process/output.h"
#include "worker/process/reaper.h"
#include "worker/process/spawn.h"
#include "worker/process/sweep.h"

using namespace ddprun;
using namespace ddprun::process;
using namespace std::chrono_literals;

namespace {

// Runs shell scripts as workers, with stdout in a file.
struct Workers {
  boost::asio::io_context loop;
  Reaper reaper{loop.get_executor()};
  test::TempDir folder;
  std::string output_path = folder.path() + "/out";

  Process start(const std::string& script) {
    Fd output(::open(output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    auto process = spawn({.argv = {"/bin/sh", "-c", script},
                          .environment = {"PATH=/usr/bin:/bin", "GREETING=hello"},
                          .stdout_fd = output.get()});
    REQUIRE(process.has_value());
    return std::move(*process);
  }

  ExitStatus status_of(Process process) {
    std::optional<ExitStatus> status;
    reaper.watch(std::move(process), [&](ExitStatus ended) { status = ended; });
    REQUIRE(test::run_until(loop, [&] { return status.has_value(); }));
    return *status;
  }

  std::string run(const std::string& script) { return to_string(status_of(start(script))); }

  std::string output() const {
    std::ifstream file(output_path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Waits for a worker to say that it has come so far.
  void wait_for_output(const std::string& text) {
    auto deadline = std::chrono::steady_clock::now() + 20s;
    while (output().find(text) == std::string::npos) {
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      ::usleep(1000);
    }
  }

  SweepResult swept(MonoTime deadline) {
    std::optional<SweepResult> result;
    boost::asio::co_spawn(
        loop, sweep(reaper, deadline),
        [&](std::exception_ptr, SweepResult swept) { result = std::move(swept); });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return *result;
  }
};

}  // namespace

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

  TEST_CASE_FIXTURE(Workers, "a worker starts with no signal blocked and SIGPIPE at its default") {
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR1);
    ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
    CHECK(run("grep -E 'SigBlk|SigIgn' /proc/self/status") == "exited with code 0");
    ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
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

  TEST_CASE_FIXTURE(Workers, "many exits at once are each reported once") {
    int ended = 0;
    for (int i = 0; i < 64; ++i) {
      reaper.watch(start("exit 0"),
                   [&](ExitStatus status) { ended += status.is_success() ? 1 : 0; });
    }
    CHECK(test::run_until(loop, [&] { return ended == 64; }));
  }

  TEST_CASE("a name without a slash is looked up in PATH") {
    CHECK(find_program("sh", "/nowhere:/usr/bin:/bin").value().ends_with("bin/sh"));
    CHECK(find_program("./x", "/bin").value() == "./x");
    CHECK(to_string(find_program("no-such-program", "/usr/bin:/bin").error()) ==
          "program 'no-such-program' was not found in PATH");
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

TEST_SUITE("worker/process/output") {
  TEST_CASE_FIXTURE(Workers, "lines reach the console whole and prefixed, the file as they are") {
    Fd screen(::open((folder.path() + "/console").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    Console console(loop.get_executor(), screen.get());
    Fd file(::open((folder.path() + "/file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    auto pump =
        OutputPump::open(loop.get_executor(),
                         {.file = std::move(file), .console = &console, .prefix = "[default0]:"});
    REQUIRE(pump.has_value());
    auto process = spawn({.argv = {"/bin/sh", "-c", "printf 'one\\ntw'; printf 'o\\n\\377 three'"},
                          .environment = {"PATH=/usr/bin:/bin"},
                          .stdout_fd = (*pump)->write_end()});
    REQUIRE(process.has_value());
    (*pump)->close_write_end();
    CHECK(status_of(std::move(*process)).is_success());
    (*pump)->drain();

    auto content = [&](const char* name) {
      std::ifstream stream(folder.path() + "/" + name);
      return std::string(std::istreambuf_iterator<char>(stream), {});
    };
    CHECK(content("file") == "one\ntwo\n\377 three");
    CHECK(content("console") == "[default0]:one\n[default0]:two\n[default0]:\377 three\n");
  }

  TEST_CASE_FIXTURE(Workers,
                    "a console that nobody reads blocks nobody, and says what it left out") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    Console console(loop.get_executor(), write_end.get());
    std::string line(1023, 'x');
    line += '\n';
    for (std::size_t sent = 0; sent < Console::kMaxWaitingBytes + 1024 * 1024;
         sent += line.size()) {
      console.write(line);  // would block here for ever
    }
    std::string received;
    std::string buffer(64 * 1024, '\0');
    auto take_until = [&](const std::function<bool()>& is_enough) {
      return test::run_until(loop, [&] {
        ssize_t count = ::read(read_end.get(), buffer.data(), buffer.size());
        if (count > 0) received.append(buffer, 0, static_cast<std::size_t>(count));
        return is_enough();
      });
    };
    REQUIRE(take_until([&] { return received.size() >= Console::kMaxWaitingBytes; }));
    console.write("the end\n");
    REQUIRE(take_until([&] { return received.ends_with("the end\n"); }));
    CHECK(received.starts_with(line + line));
    CHECK(received.ends_with(" bytes are left out here, this console was too slow]\nthe end\n"));
    CHECK((::fcntl(write_end.get(), F_GETFL) & O_NONBLOCK) == 0);  // the shared flag is untouched
  }

  TEST_CASE_FIXTURE(Workers,
                    "a console on a non-blocking socket loses nothing and comes to its end") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    Fd read_end(ends[0]);
    Fd write_end(ends[1]);
    ::fcntl(write_end.get(), F_SETFL, O_NONBLOCK);
    std::size_t received = 0;
    std::thread reader([&] {
      std::string buffer(64 * 1024, '\0');
      for (ssize_t count; (count = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;) {
        received += static_cast<std::size_t>(count);
      }
    });
    std::string line(4096, 'x');
    line.back() = '\n';
    {
      Console console(loop.get_executor(), write_end.get());
      for (int i = 0; i < 1000; ++i) console.write(line);
      console.finish();
    }
    ::shutdown(write_end.get(), SHUT_WR);
    reader.join();
    CHECK(received == 1000 * line.size());
  }

  TEST_CASE("a line without end is passed on in pieces rather than held for ever") {
    LineSplitter splitter("> ");
    CHECK(splitter.feed("ab").empty());
    std::string held(LineSplitter::kMaxLineBytes, 'x');
    CHECK(splitter.feed(held) == "> ab" + held + "\n");
    CHECK(splitter.finish().empty());
  }
}
