// SPDX-License-Identifier: BSD-3-Clause
#include "agent/signal_relay.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>

using namespace ddprun;
using namespace ddprun::agent;
using namespace std::chrono_literals;

namespace {

constexpr int kOutside = 0;  // a sender in another pid namespace, as slurmstepd is for a container

struct Guarded {
  boost::asio::io_context loop;
  process::Fd write_end;
  std::shared_ptr<process::Fd> read_end;

  Guarded() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    read_end = std::make_shared<process::Fd>(ends[0]);
    write_end = process::Fd(ends[1]);
  }

  void report(int signal, int sender = kOutside) const {
    process::SignalReport text{.signal = signal, .sender = sender};
    REQUIRE(::write(write_end.get(), &text, sizeof text) == sizeof text);
  }
  bool reached(SignalEcho& echo, int signal, std::chrono::milliseconds patience = 1ms) {
    bool answer = false;
    auto ask = [](SignalEcho& asked, int number, std::chrono::milliseconds limit,
                  bool& result) -> boost::asio::awaitable<void> {
      result = co_await asked.reached_workers(number, limit);
    };
    bool is_done = false;
    boost::asio::co_spawn(loop, ask(echo, signal, patience, answer),
                          [&](std::exception_ptr) { is_done = true; });
    loop.restart();
    while (!is_done) loop.run_one();
    return answer;
  }
};

}  // namespace

TEST_SUITE("agent/signal_relay") {
  TEST_CASE_FIXTURE(Guarded, "what the guardian got the workers have, once for each time") {
    SignalEcho echo(loop.get_executor(), read_end, true);
    report(SIGUSR1);
    report(SIGUSR1);
    report(SIGTERM);
    CHECK(reached(echo, SIGUSR1));
    CHECK(reached(echo, SIGTERM));
    CHECK(reached(echo, SIGUSR1));
    CHECK_FALSE(reached(echo, SIGUSR1));  // to the agent alone: a person's
    echo.stop();
  }

  TEST_CASE_FIXTURE(Guarded, "a late report answers the question that it missed, and no other") {
    SignalEcho echo(loop.get_executor(), read_end, false);
    CHECK_FALSE(reached(echo, SIGUSR1));
    report(SIGUSR1);
    report(SIGUSR2);
    loop.restart();
    loop.poll();
    CHECK(reached(echo, SIGUSR2, 10s));
    CHECK_FALSE(reached(echo, SIGUSR1));
    echo.stop();
  }

  TEST_CASE_FIXTURE(Guarded,
                    "what a program other than Slurm's sends to everybody does not count") {
    SignalEcho echo(loop.get_executor(), read_end, false);
    report(SIGTERM, ::getpid());
    CHECK_FALSE(reached(echo, SIGTERM));
    echo.stop();
  }

  TEST_CASE("without reports there is nothing to wait for") {
    Guarded nobody;
    SignalEcho echo(nobody.loop.get_executor(), nullptr, false);
    CHECK_FALSE(nobody.reached(echo, SIGTERM, 1h));
    echo.stop();
  }
}
