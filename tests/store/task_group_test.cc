// SPDX-License-Identifier: BSD-3-Clause
#include "store/task_group.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <stdexcept>
#include <string>

using ddprun::store::TaskGroup;
namespace asio = boost::asio;

namespace {

asio::awaitable<void> wait_for_ever() {
  asio::steady_timer timer(co_await asio::this_coro::executor,
                           asio::steady_timer::time_point::max());
  co_await timer.async_wait(asio::use_awaitable);
}

asio::awaitable<void> throw_at_once() {
  throw std::runtime_error("broken");
  co_return;
}

asio::awaitable<void> join_then_note(TaskGroup& group, bool& is_joined) {
  co_await group.join();
  is_joined = true;
}

asio::awaitable<void> spawn_then_end(TaskGroup& group) {
  group.spawn(wait_for_ever());
  co_return;
}

struct Group {
  asio::io_context context;
  std::string errors;
  TaskGroup group{context.get_executor(), [this](std::exception_ptr error) {
                    try {
                      std::rethrow_exception(error);
                    } catch (const std::exception& e) {
                      errors += e.what();
                    }
                  }};
  bool is_joined = false;

  void join_and_run() {
    asio::co_spawn(context, join_then_note(group, is_joined), asio::detached);
    run();
  }

  void run() {
    context.restart();
    context.poll();
  }
};

}  // namespace

TEST_SUITE("store/task_group") {
  TEST_CASE_FIXTURE(Group, "an empty group is joined at once") {
    join_and_run();
    CHECK(is_joined);
  }

  TEST_CASE_FIXTURE(Group, "a cancelled task ends, is no error, and is waited for") {
    group.spawn(wait_for_ever());
    group.spawn(wait_for_ever());
    join_and_run();
    CHECK_FALSE(is_joined);
    CHECK_FALSE(group.empty());
    group.cancel();
    run();
    CHECK(is_joined);
    CHECK(group.empty());
    CHECK(errors.empty());
  }

  TEST_CASE_FIXTURE(Group, "a task that is cancelled before it starts ends as well") {
    group.spawn(wait_for_ever());
    group.cancel();
    run();
    CHECK(group.empty());
  }

  TEST_CASE_FIXTURE(Group, "what a task throws is told to the owner") {
    group.spawn(throw_at_once());
    run();
    CHECK(errors == "broken");
    CHECK(group.empty());
  }

  TEST_CASE("what a task throws leaves the event loop where the owner does not want it") {
    asio::io_context context;
    TaskGroup group(context.get_executor());
    group.spawn(throw_at_once());
    CHECK_THROWS_WITH(context.poll(), "broken");
    CHECK(group.empty());
    group.spawn(wait_for_ever());
    group.cancel();
    context.restart();
    CHECK_NOTHROW(context.poll());
    CHECK(group.empty());
  }

  TEST_CASE_FIXTURE(Group, "a task may spawn another; join waits for both") {
    group.spawn(spawn_then_end(group));
    join_and_run();
    CHECK_FALSE(is_joined);
    group.cancel();
    run();
    CHECK(is_joined);
  }
}
