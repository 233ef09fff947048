// SPDX-License-Identifier: BSD-3-Clause
#include "store/poller.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

#include "store/base/fd.h"
#include "tests/support/event_loop.h"

using namespace ddprun::store;
using ddprun::Fd;
using ddprun::test::run_until;

namespace {

// The two ends of a connection.
struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()) == 0);
    near = Fd(fds[0]);
    far = Fd(fds[1]);
  }

  void say(const std::string& bytes) const {
    REQUIRE(::write(far.get(), bytes.data(), bytes.size()) == ssize_t(bytes.size()));
  }

  Fd near, far;
};

struct Fixture {
  boost::asio::io_context loop{1};
  Poller poller{loop.get_executor(), Poller::make_set().value()};

  std::vector<std::uint64_t> ready_ids() {
    std::vector<std::uint64_t> ids;
    for (const Poller::Ready& ready : poller.ready()) ids.push_back(ready.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }
};

}  // namespace

TEST_SUITE("store/poller") {
  TEST_CASE_FIXTURE(Fixture, "a descriptor stays ready until it is read, and Asio is told once") {
    Pair one, two;
    REQUIRE(poller.add(one.near.get(), 1));
    REQUIRE(poller.add(two.near.get(), 2));
    CHECK(ready_ids().empty());
    int calls = 0;
    poller.async_wait([&](const auto&) { ++calls; });
    one.say("x");
    two.say("y");
    CHECK(run_until(loop, [&] { return calls == 1; }));
    CHECK(ready_ids() == std::vector<std::uint64_t>{1, 2});
    char byte = 0;
    CHECK(::read(one.near.get(), &byte, 1) == 1);
    CHECK(ready_ids() == std::vector<std::uint64_t>{2});
    CHECK(calls == 1);
  }

  TEST_CASE_FIXTURE(Fixture, "only what is of interest is told, but a broken connection always") {
    Pair pair;
    REQUIRE(poller.add(pair.near.get(), 7));
    poller.change(pair.near.get(), 7, {.readable = false, .writable = true});
    pair.say("x");
    auto ready = poller.ready();
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].is_writable);
    CHECK_FALSE(ready[0].is_readable);
    poller.change(pair.near.get(), 7, {.readable = false, .writable = false});
    CHECK(poller.ready().empty());
    pair.far = Fd();
    ready = poller.ready();
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].is_writable);
    CHECK(ready[0].is_readable);
    // Not at each look until somebody can do something about it.
    CHECK(poller.ready().empty());
    poller.change(pair.near.get(), 7, {.readable = true, .writable = false});
    CHECK(poller.ready().size() == 1);
    CHECK(poller.ready().size() == 1);
  }

  TEST_CASE_FIXTURE(Fixture, "a descriptor that was removed is not told of") {
    Pair pair;
    REQUIRE(poller.add(pair.near.get(), 1));
    pair.say("x");
    poller.remove(pair.near.get());
    CHECK(ready_ids().empty());
  }

  TEST_CASE_FIXTURE(Fixture, "close() cancels the wait") {
    boost::system::error_code outcome;
    bool is_called = false;
    poller.async_wait([&](const boost::system::error_code& error) {
      outcome = error;
      is_called = true;
    });
    poller.close();
    CHECK(run_until(loop, [&] { return is_called; }));
    CHECK(outcome == boost::asio::error::operation_aborted);
  }
}
