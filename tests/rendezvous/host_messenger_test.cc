// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/host_messenger.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <string>
#include <utility>
#include <vector>

#include "store/clock.h"
#include "store/socket.h"
#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

namespace asio = boost::asio;

// A host's machine that answers the greeting, as torch's server does, and then stands still.
struct MuteHost {
  asio::io_context loop{1};
  Fd listener = store::listen_on({.host = "127.0.0.1", .port = 0}).value();
  std::vector<Fd> peers;
  std::size_t greeted = 0;
  NetworkConfig config;
  NodeSecurity security{loop.get_executor(), config};
  Dialer dialer{loop.get_executor(),
                {.config = config,
                 .security = security,
                 .search_ends = [] { return MonoTime::max(); },
                 .log = [](const std::string&) {}}};
  HostMessenger messenger{loop.get_executor(),
                          {.dialer = dialer, .config = config, .registered = nullptr}};

  Endpoint endpoint() const {
    return {.host = "127.0.0.1", .port = store::local_port(listener.get()).value()};
  }

  // The first two connections ask for our extensions, and are closed upon that.
  void answer() {
    if (Fd peer = store::accept_from(listener.get())) peers.push_back(std::move(peer));
    if (greeted == peers.size()) return;
    Fd& newest = peers.back();
    std::string greeting(10, '\0');
    if (::recv(newest.get(), greeting.data(), 10, MSG_PEEK | MSG_DONTWAIT) != 10) return;
    CHECK(::send(newest.get(), greeting.data() + 6, 4, 0) == 4);
    if (++greeted <= 2) newest = Fd();
  }

  bool ends(asio::awaitable<void> task) {
    bool is_over = false;
    asio::co_spawn(loop, std::move(task), [&](std::exception_ptr error) {
      CHECK(error == nullptr);
      is_over = true;
    });
    asio::steady_timer look(loop);
    return test::run_until(loop, [&] {
      answer();
      look.expires_after(std::chrono::milliseconds(5));
      look.async_wait([](boost::system::error_code) {});
      return is_over;
    });
  }
};

}  // namespace

TEST_SUITE("rendezvous/host_messenger") {
  TEST_CASE_FIXTURE(MuteHost, "a host that no more answers holds up no end") {
    const MonoTime end = mono_now() + std::chrono::milliseconds(500);
    CHECK(ends(messenger.tell({endpoint()}, "gone", end)));
    CHECK(greeted == 3);
  }

  TEST_CASE_FIXTURE(MuteHost, "nor a talk of a moment") {
    bool has_failed = false;
    auto talk = [&]() -> asio::awaitable<void> {
      auto client = co_await dialer.connect_within(std::chrono::milliseconds(500), endpoint());
      if (!client) FAIL(to_string(client.error()));
      std::vector<std::string> keys = {"key"};
      auto is_there = co_await (*client)->check(std::move(keys));
      has_failed = !is_there;
    };
    CHECK(ends(talk()));
    CHECK(has_failed);
  }
}
