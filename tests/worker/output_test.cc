// SPDX-License-Identifier: BSD-3-Clause
#include "worker/process/output.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <csignal>
#include <thread>

#include "store/base/fd.h"
#include "tests/support/workers.h"
#include "worker/process/decide/line_filter.h"

using namespace ddprun;
using namespace ddprun::process;

namespace {

struct Output : test::Workers {
  Fd screen{::open((folder.path() + "/console").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  IoThread disk{loop.get_executor(), [](const IoThread::Stall&) {}};
  std::vector<std::string> failures;

  std::string content(const std::string& name) const {
    std::ifstream stream(folder.path() + "/" + name);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  LogFile file(const std::string& path) {
    Result<Fd> opened = LogFile::open(path);
    REQUIRE(opened.has_value());
    return file(std::move(*opened), path);
  }
  LogFile file(Fd opened, const std::string& path) {
    return {path, std::move(opened), disk,
            [this](const Error& error) { failures.push_back(to_string(error)); }};
  }

  // Runs a script with its stdout in a pump, to its end.
  void pump(const std::string& script, OutputPump::Sinks sinks) {
    Console* console = sinks.console;
    auto pump = OutputPump::open(loop.get_executor(), std::move(sinks));
    REQUIRE(pump.has_value());
    auto process = spawn({.argv = {"/bin/sh", "-c", script},
                          .environment = {"PATH=/usr/bin:/bin"},
                          .stdout_fd = (*pump)->write_end()});
    REQUIRE(process.has_value());
    (*pump)->close_write_end();
    CHECK(status_of(std::move(*process)).is_success());
    (*pump)->drain();
    finish(console);
  }

  // Waits for what threads write.
  void finish(Console* console) {
    REQUIRE(test::run_until(loop, [&] {
      return disk.is_idle() && (console == nullptr || console->waiting_bytes() == 0);
    }));
  }
};

// A pipe with a console at its one end, and nobody who reads at the other until somebody takes.
struct SlowReader : test::Workers {
  Fd read_end;
  Fd write_end;
  std::optional<Console> console;
  std::string received;

  SlowReader() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    read_end = Fd(ends[0]);
    write_end = Fd(ends[1]);
    console.emplace(loop.get_executor(), write_end.get());
  }

  bool take_until(const std::function<bool()>& is_enough) {
    std::string buffer(64 * 1024, '\0');
    return test::run_until(loop, [&] {
      for (ssize_t count; (count = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;)
        received.append(buffer, 0, static_cast<std::size_t>(count));
      return is_enough();
    });
  }

  // Writes until writers should wait.
  void fill(const std::string& line) {
    while (!console->wants_pause()) console->pass_on(line);
  }
};

// What a console shows of `pieces` that arrive one after the other.
std::string shown(const std::vector<std::string>& pieces) {
  LineSplitter splitter("> ");
  std::string lines;
  for (const std::string& piece : pieces) splitter.feed(piece, lines);
  splitter.finish(lines);
  return lines;
}

}  // namespace

TEST_SUITE("worker/process/output") {
  TEST_CASE_FIXTURE(Output, "lines reach the console whole and prefixed, the file as they are") {
    Console console(loop.get_executor(), screen.get());
    pump("printf 'one\\ntw'; printf 'o\\n\\377 three'",
         {.file = file(folder.path() + "/file"), .console = &console, .prefix = "[default0]:"});
    CHECK(content("file") == "one\ntwo\n\377 three");
    CHECK(content("console") == "[default0]:one\n[default0]:two\n[default0]:\377 three\n");
  }

  TEST_CASE_FIXTURE(Output, "a prefix that changes is asked for at each batch") {
    Console console(loop.get_executor(), screen.get());
    int count = 0;
    pump("echo one; echo two", {.file = std::nullopt, .console = &console, .changing_prefix = [&] {
                                  return std::to_string(++count) + " ";
                                }});
    CHECK(content("console").starts_with("1 one\n"));
  }

  TEST_CASE_FIXTURE(Output,
                    "lines with one of some texts also go to another file, with the prefix") {
    Console console(loop.get_executor(), screen.get());
    auto filtered = std::make_shared<FilteredLog>(
        FilteredLog{file(folder.path() + "/filtered"), {"loss", "a,b"}});
    for (const char* prefix : {"[loss0]:", "[loss1]:"}) {
      pump("echo loss 1; echo other; printf 'a,b'",
           {.file = std::nullopt, .console = &console, .prefix = prefix, .filtered = filtered});
    }
    CHECK(content("filtered") == "[loss0]:loss 1\n[loss0]:a,b\n[loss1]:loss 1\n[loss1]:a,b\n");
  }

  TEST_CASE_FIXTURE(Output, "a full disk is told once, and the console goes on") {
    Console console(loop.get_executor(), screen.get());
    LogFile full = file("/dev/full");
    full.write("zero\n");
    pump("echo one; echo two", {.file = std::move(full), .console = &console, .prefix = "> "});
    CHECK(content("console") == "> one\n> two\n");
    CHECK(failures == std::vector<std::string>{"write /dev/full: No space left on device"});
  }

  // As on a disk that is full and then has room again.
  TEST_CASE_FIXTURE(Output,
                    "a console's file that can grow no more is told once, and goes on later") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    Console console(loop.get_executor(), screen.get());
    int told = 0;
    console.on_loss([&] { ++told; });
    console.write("whole\n");
    finish(&console);
    CHECK(console.loss().bytes == 0);
    rlimit limit{.rlim_cur = 9, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    console.write("half\n");
    finish(&console);
    console.write("none\n");
    finish(&console);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(console.loss().bytes == 7);
    CHECK(console.loss().error_number == EFBIG);
    CHECK(test::run_until(loop, [&] { return told == 1; }));
    console.write("again\n");
    console.write("on\n");
    finish(&console);
    CHECK(content("console") ==
          "whole\nhal\n[ddprun: 7 bytes are missing here, the file could not be written: File too "
          "large (past the limit of a file's size: ulimit -f); the log files have them, where logs "
          "are kept]\nagain\non\n");
    CHECK(told == 1);
    std::signal(SIGXFSZ, old_handler);
  }

  TEST_CASE_FIXTURE(Output, "a device that refuses everything is told once, a closed pipe never") {
    Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    int told = 0;
    Console console(loop.get_executor(), full.get());
    console.write("before somebody listens\n");
    console.on_loss([&] { ++told; });
    console.write("after\n");
    CHECK(test::run_until(loop, [&] { return told == 1; }));
    CHECK(console.loss().bytes == 30);
    CHECK(console.loss().error_number == ENOSPC);
    auto old_handler = std::signal(SIGPIPE, SIG_IGN);
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    ::close(ends[0]);
    Fd write_end(ends[1]);
    Console closed(loop.get_executor(), write_end.get());
    closed.write("lost\n");
    CHECK(closed.loss().bytes == 0);
    std::signal(SIGPIPE, old_handler);
  }

  TEST_CASE_FIXTURE(Output, "what a disk refuses only at the close of a file is told once, too") {
    {
      Result<Fd> opened = LogFile::open(folder.path() + "/log");
      REQUIRE(opened.has_value());
      const int fd = opened->get();
      LogFile log = file(std::move(*opened), folder.path() + "/log");
      log.write("one\n");
      finish(nullptr);
      ::close(fd);
      SUBCASE("which has taken all before") {}
      SUBCASE("which has refused some before") {
        log.write("two\n");
      }
    }
    finish(nullptr);
    CHECK(failures ==
          std::vector<std::string>{"write " + folder.path() + "/log: Bad file descriptor"});
    CHECK(content("log") == "one\n");
  }

  TEST_CASE_FIXTURE(Output, "what a killed worker left in the pipe is not lost") {
    Console console(loop.get_executor(), screen.get());
    auto pump = OutputPump::open(loop.get_executor(), {.file = std::nullopt, .console = &console});
    REQUIRE(pump.has_value());
    auto process = spawn({.argv = {"/bin/sh", "-c", "seq 20000; kill -KILL $$"},
                          .environment = {"PATH=/usr/bin:/bin"},
                          .stdout_fd = (*pump)->write_end()});
    REQUIRE(process.has_value());
    (*pump)->close_write_end();
    ::pollfd ended{.fd = process->pidfd.get(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ended, 1, 20'000) == 1);  // the loop has not run: all of it is in the pipe
    (*pump)->drain();
    CHECK_FALSE(status_of(std::move(*process)).is_success());
    finish(&console);
    CHECK(content("console").ends_with("\n19999\n20000\n"));
  }

  TEST_CASE_FIXTURE(SlowReader,
                    "a reader that takes its time makes writers wait, and loses nothing") {
    std::string line(1023, 'x');
    line += '\n';
    fill(line);
    std::size_t sent = Console::kMaxWaitingBytes;
    bool has_room = false;
    console->when_room([&] { has_room = true; });
    REQUIRE(take_until([&] { return has_room; }));
    CHECK_FALSE(console->wants_pause());
    console->pass_on("the end\n");
    REQUIRE(take_until([&] { return received.ends_with("the end\n"); }));
    CHECK(received.size() >= sent);
    CHECK(received.find("left out") == std::string::npos);
  }

  TEST_CASE_FIXTURE(SlowReader, "a reader that stands still misses lines, and is told so once") {
    std::string line(1023, 'x');
    line += '\n';
    fill(line);
    bool may_go_on = false;
    console->when_room([&] { may_go_on = true; });
    REQUIRE(test::run_until(loop, [&] { return may_go_on; }));
    CHECK_FALSE(console->wants_pause());
    for (int i = 0; i < 1000; ++i) console->pass_on(line);  // blocks nobody
    REQUIRE(take_until([&] { return received.ends_with("where logs are kept]\n"); }));
    CHECK(received.starts_with(line + line));
    CHECK(received.ends_with(
        line +
        "[ddprun: 1024000 bytes are left out here, this console was too slow; the log files have "
        "them, where logs are kept]\n"));
    console->pass_on("again\n");
    REQUIRE(take_until([&] { return received.ends_with("]\nagain\n"); }));
    CHECK((::fcntl(write_end.get(), F_GETFL) & O_NONBLOCK) == 0);  // the shared flag is untouched
  }

  TEST_CASE_FIXTURE(SlowReader, "what is kept nowhere else waits for a reader that stands still") {
    console->leave_nothing_out();
    std::string line(1023, 'x');
    line += '\n';
    fill(line);
    bool may_go_on = false;
    console->when_room([&] { may_go_on = true; });
    boost::asio::steady_timer longer(loop, 2 * Console::kPatience);
    bool is_over = false;
    longer.async_wait([&](boost::system::error_code) { is_over = true; });
    REQUIRE(test::run_until(loop, [&] { return is_over; }));
    CHECK_FALSE(may_go_on);
    CHECK(console->wants_pause());
    REQUIRE(take_until([&] { return may_go_on; }));
    console->pass_on("the end\n");
    REQUIRE(take_until([&] { return received.ends_with("the end\n"); }));
    CHECK(received.find("left out") == std::string::npos);
  }

  TEST_CASE_FIXTURE(SlowReader, "what cannot wait is left out beyond a bound") {
    std::string megabyte(1024 * 1024 - 1, 'x');
    megabyte += '\n';
    // So much waits here, and so much in the pipe.
    std::size_t bound =
        Console::kMostBytes + static_cast<std::size_t>(::fcntl(write_end.get(), F_GETPIPE_SZ));
    for (std::size_t sent = 0; sent <= bound; sent += megabyte.size()) console->write(megabyte);
    REQUIRE(take_until([&] { return received.ends_with("where logs are kept]\n"); }));
    CHECK(received.size() < bound + megabyte.size());
  }

  TEST_CASE_FIXTURE(test::Workers,
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
      REQUIRE(test::run_until(loop, [&] { return console.waiting_bytes() == 0; }));
    }
    ::shutdown(write_end.get(), SHUT_WR);
    reader.join();
    CHECK(received == 1000 * line.size());
  }
}

TEST_SUITE("worker/process/decide/line_splitter") {
  TEST_CASE("lines are whole, whatever the pieces") {
    CHECK(shown({"one\ntwo\n"}) == "> one\n> two\n");
    CHECK(shown({"o", "n", "e\nt", "wo"}) == "> one\n> two\n");
    CHECK(shown({"\n\n"}) == "> \n> \n");
    CHECK(shown({""}) == "");
  }

  TEST_CASE("a carriage return ends a line, as a progress bar means it") {
    CHECK(shown({"\r 0%\r 50%\r 100%\n"}) == ">  0%\n>  50%\n>  100%\n");
    CHECK(shown({" 0%", "\r", " 50%", "\r", "\n"}) == ">  0%\n>  50%\r\n");
    CHECK(shown({"dos\r\n", "line\r", "\n"}) == "> dos\r\n> line\r\n");
    CHECK(shown({"bar\r"}) == "> bar\n");
    CHECK(shown({"a\r\r\rb\n"}) == "> a\n> b\n");
  }

  TEST_CASE("a line without end is passed on in pieces rather than held for ever") {
    LineSplitter splitter("> ");
    std::string lines;
    splitter.feed("ab", lines);
    CHECK(lines.empty());
    std::string held(LineSplitter::kMaxLineBytes, 'x');
    splitter.feed(held, lines);
    CHECK(lines == "> ab" + held + "\n");
    lines.clear();
    splitter.finish(lines);
    CHECK(lines.empty());
  }

  TEST_CASE("a filter looks behind the prefix") {
    CHECK(matching_lines("[a]:x\n[a]:a\n", 4, {"a"}) == "[a]:a\n");
    CHECK(matching_lines("[a]:x\n[a]:y\n", 4, {"y", "x"}) == "[a]:x\n[a]:y\n");
    CHECK(matching_lines("", 4, {"a"}).empty());
  }
}
