// SPDX-License-Identifier: BSD-3-Clause
#include "agent/signal_relay.h"
#include "store/base/fd.h"

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

constexpr const char* kSender = "slurmstepd";
constexpr int kOutside = 0;  // a sender in another pid namespace, as it is for a container

struct Guarded {
  boost::asio::io_context loop;
  Fd write_end;
  std::shared_ptr<Fd> read_end;

  Guarded() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    read_end = std::make_shared<Fd>(ends[0]);
    write_end = Fd(ends[1]);
  }

  void report(int signal, int sender = kOutside) const {
    process::SignalReport text{.signal = signal, .sender = sender};
    REQUIRE(::write(write_end.get(), &text, sizeof text) == sizeof text);
  }
  bool reached(SignalRelay& relay, int signal, std::chrono::milliseconds patience = 1ms) {
    bool answer = false;
    auto ask = [](SignalRelay& asked, int number, std::chrono::milliseconds limit,
                  bool& result) -> boost::asio::awaitable<void> {
      result = co_await asked.reached_workers(number, limit);
    };
    bool is_done = false;
    boost::asio::co_spawn(loop, ask(relay, signal, patience, answer),
                          [&](std::exception_ptr) { is_done = true; });
    loop.restart();
    while (!is_done) loop.run_one();
    return answer;
  }
};

}  // namespace

TEST_SUITE("agent/signal_relay") {
  TEST_CASE_FIXTURE(Guarded, "what the guardian got the workers have, once for each time") {
    SignalRelay relay(loop.get_executor(), read_end, kSender, true);
    report(SIGUSR1);
    report(SIGUSR1);
    report(SIGTERM);
    CHECK(reached(relay, SIGUSR1));
    CHECK(reached(relay, SIGTERM));
    CHECK(reached(relay, SIGUSR1));
    CHECK_FALSE(reached(relay, SIGUSR1));  // to the agent alone: a person's
    relay.stop();
  }

  TEST_CASE_FIXTURE(Guarded, "a late report answers the question that it missed, and no other") {
    SignalRelay relay(loop.get_executor(), read_end, kSender, false);
    CHECK_FALSE(reached(relay, SIGUSR1));
    report(SIGUSR1);
    report(SIGUSR2);
    loop.restart();
    loop.poll();
    CHECK(reached(relay, SIGUSR2, 10s));
    CHECK_FALSE(reached(relay, SIGUSR1));
    relay.stop();
  }

  TEST_CASE_FIXTURE(Guarded,
                    "what a program other than the scheduler's sends to everybody does not count") {
    SignalRelay relay(loop.get_executor(), read_end, kSender, false);
    report(SIGTERM, ::getpid());
    CHECK_FALSE(reached(relay, SIGTERM));
    relay.stop();
  }

  TEST_CASE("without reports there is nothing to wait for") {
    Guarded nobody;
    SignalRelay relay(nobody.loop.get_executor(), nullptr, kSender, false);
    CHECK_FALSE(nobody.reached(relay, SIGTERM, 1h));
    relay.stop();
  }
}
