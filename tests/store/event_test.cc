// SPDX-License-Identifier: BSD-3-Clause
#include "store/event.h"

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <string>

#include "store/clock.h"
#include "store/task_group.h"
#include "tests/support/event_loop.h"

using ddprun::Duration;
using ddprun::mono_now;
using ddprun::MonoTime;
using ddprun::store::Event;
using ddprun::store::TaskGroup;
namespace asio = boost::asio;

namespace {

// Coroutines that wait for one event, and what has become of them.
struct Waiting {
  asio::io_context context;
  Event event{context.get_executor()};
  TaskGroup tasks{context.get_executor(), [](std::exception_ptr) {}};
  std::string ended;

  ~Waiting() {
    tasks.cancel();
    run();
  }

  asio::awaitable<void> wait(char name) {
    co_await event.wait();
    ended += name;
  }

  asio::awaitable<void> wait_until(char name, MonoTime deadline) {
    co_await event.wait_until(deadline);
    ended += name;
  }

  void run() {
    context.restart();
    context.poll();
  }
};

}  // namespace

TEST_SUITE("store/event") {
  TEST_CASE_FIXTURE(Waiting,
                    "a notification ends every wait that has begun, and none that begins later") {
    tasks.spawn(wait('a'));
    tasks.spawn(wait_until('b', MonoTime::max()));
    run();
    CHECK(ended.empty());
    event.notify();
    tasks.spawn(wait('c'));
    run();
    CHECK(ended == "ab");
  }

  TEST_CASE_FIXTURE(Waiting, "a wait with a deadline ends without a notification; others go on") {
    tasks.spawn(wait('a'));
    tasks.spawn(wait_until('b', MonoTime::max()));
    tasks.spawn(wait_until('c', mono_now()));
    CHECK(ddprun::test::run_until(context, [this] { return ended == "c"; }));
    run();
    CHECK(ended == "c");
  }

  TEST_CASE_FIXTURE(Waiting, "waits of a cancelled coroutine end") {
    tasks.spawn(wait('a'));
    tasks.spawn(wait_until('b', MonoTime::max()));
    run();
    tasks.cancel();
    run();
    CHECK(tasks.empty());
  }
}
