// SPDX-License-Identifier: BSD-3-Clause
//
// A server with a gate, and processes of other users.
#include <doctest/doctest.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/server.h"
#include "store/socket_owner.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"

using namespace ddprun::store;
using namespace std::string_view_literals;
using ddprun::Fd;
using ddprun::test::RawClient;
using ddprun::test::RunningServer;

namespace {

constexpr uid_t kNobody = 65534;
constexpr uid_t kStranger = 54321;

ServerConfig gated(bool any_user = false, const std::string& listen = "127.0.0.1") {
  ServerConfig config;
  config.listen = {.host = listen, .port = 0};
  config.gate = Gate{.user = ::geteuid(), .any_user = any_user};
  return config;
}

bool is_served(RawClient& client) {
  client.shake_hands();
  return client.send(request::Ping{7}).receive(4) == "\7\0\0\0"sv;
}

// Whether `claim` holds in a process of another user.
bool holds_for(uid_t user, const std::function<bool()>& claim) {
  pid_t child = ::fork();
  if (child == 0) {
    bool is_other = ::setgroups(0, nullptr) == 0 && ::setresuid(user, user, user) == 0;
    ::_exit(is_other && claim() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The kernel counts a connection as that of the user who made its socket.
RawClient client_of(uid_t user, std::uint16_t port) {
  REQUIRE(::seteuid(user) == 0);
  RawClient client(port);
  REQUIRE(::seteuid(0) == 0);
  return client;
}

void renew_with(RunningServer& server, const Gate& gate) {
  server.ask([&](Server& store) {
    store.renew_common_namespace(gate);
    return true;
  });
}

bool can_become_others() {
  if (::geteuid() == 0 && holds_for(kStranger, [] { return true; })) return true;
  MESSAGE("skipped: only root can play another user");
  return false;
}

}  // namespace

TEST_SUITE("store/server/gate") {
  TEST_CASE("this user's processes are served, over IPv4, IPv6 and between the two") {
    for (const char* listen : {"127.0.0.1", "0.0.0.0", "::1", "::"}) {
      CAPTURE(listen);
      RunningServer server(gated(false, listen));
      if (listen != "::1"sv) {
        RawClient client(server.port());
        CHECK(is_served(client));
        RawClient mapped(server.port(), "::ffff:127.0.0.1");
        CHECK(is_served(mapped));
      }
      if (listen == "::1"sv || listen == "::"sv) {
        RawClient client(server.port(), "::1");
        CHECK(is_served(client));
      }
      CHECK(server.log().empty());
    }
  }

  TEST_CASE("another user is closed before a byte is read, and named once") {
    if (!can_become_others()) return;
    for (const char* listen : {"127.0.0.1", "::"}) {
      CAPTURE(listen);
      RunningServer server(gated(false, listen));
      std::uint16_t port = server.port();
      for (int i = 0; i < 3; ++i) {
        CHECK(holds_for(kStranger, [port] {
          RawClient client(port);
          client.shake_hands().send(request::Set{"k", "v"});
          return client.is_closed();
        }));
      }
      CHECK(server.log() == std::vector{"refused a process of user 54321 on this machine: the "
                                        "store is for user " +
                                        std::to_string(::geteuid())});
      CHECK(server.ask([](Server& store) { return store.keyspace().key_count(); }) == 0);
    }
  }

  TEST_CASE("a user whom the gate is told of is served, and every user if it says so") {
    if (!can_become_others()) return;
    ServerConfig config = gated();
    config.gate->admits_user = [](std::uint32_t user) { return user == kNobody; };
    RunningServer server(std::move(config));
    RunningServer open(gated(true));
    auto served_at = [](RunningServer& store) {
      return [port = store.port()] {
        RawClient client(port);
        return is_served(client);
      };
    };
    CHECK(holds_for(kNobody, served_at(server)));
    CHECK_FALSE(holds_for(kStranger, served_at(server)));
    CHECK(holds_for(kStranger, served_at(open)));
  }

  TEST_CASE("of a client that is refused nothing is noted") {
    if (!can_become_others()) return;
    RunningServer server;
    renew_with(server, Gate{.user = ::geteuid()});
    RawClient stranger = client_of(kStranger, server.port());
    stranger.shake_hands().send(request::Expect{.name = "", .pid = 7});
    CHECK(stranger.is_closed());
    RawClient browser(server.port());
    browser.send("GET /status HTTP/1.1\r\n\r\n"sv);
    CHECK(browser.receive_all().find("\"world_size\": null") != std::string::npos);
  }

  TEST_CASE("whom the gate refuses announces nothing from a namespace of its own, either") {
    if (!can_become_others()) return;
    RunningServer server;
    renew_with(server, Gate{.user = ::geteuid()});
    RawClient stranger = client_of(kStranger, server.port());
    stranger.shake_hands().send(request::EnterNamespace{"elsewhere"});
    CHECK(stranger.receive_byte() == 0);
    stranger.send(request::Expect{.name = "rank 0", .pid = 7});
    REQUIRE(stranger.is_closed());
    CHECK(server.log().back().starts_with("refused a process of user 54321"));
    auto status = [&] {
      RawClient browser(server.port());
      browser.send("GET /status HTTP/1.1\r\n\r\n"sv);
      return browser.receive_all();
    };
    CHECK(status().find("\"announced\": 0") != std::string::npos);
    RawClient launcher(server.port());
    launcher.shake_hands().send(request::EnterNamespace{"elsewhere"});
    CHECK(launcher.receive_byte() == 0);
    CHECK(launcher.send(request::Expect{.name = "rank 0", .pid = 7}).receive_byte() == 0);
    CHECK(status().find("\"announced\": 1") != std::string::npos);
  }

  TEST_CASE("whom one gate has admitted, the next one is asked about again") {
    if (!can_become_others()) return;
    RunningServer server;
    renew_with(server, Gate{.user = ::geteuid(), .any_user = true});
    RawClient stranger = client_of(kStranger, server.port());
    stranger.shake_hands().send(request::Add{"counter", 1});
    CHECK(stranger.receive_number() == 1);
    stranger.send(request::EnterNamespace{"elsewhere"});
    CHECK(stranger.receive_byte() == 0);
    renew_with(server, Gate{.user = ::geteuid()});
    stranger.send(request::EnterNamespace{""}).send(request::Add{"counter", 1});
    CHECK(stranger.receive_byte() == 0);
    CHECK(stranger.is_closed());
    CHECK(server.ask([](Server& store) { return store.keyspace().key_count(); }) == 0);
  }

  // The kernel says of a socket without a process that it is root's.
  TEST_CASE("what another user has sent before it ended is not read") {
    if (!can_become_others()) return;
    boost::asio::io_context context(1);
    auto server = Server::listen(context.get_executor(), gated()).value();
    std::string flood(4 << 20, 'x');
    for (const std::string& value : {std::string("v"), flood}) {
      CHECK(holds_for(kStranger, [&, port = server->port()] {
        std::string bytes;
        encode(request::Validate{}, bytes);
        encode(request::Set{"k", value}, bytes);
        auto client = std::make_unique<RawClient>(port);
        return ::send(client->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
      }));
    }
    RawClient good(server->port());
    context.run_for(std::chrono::milliseconds(200));
    good.shake_hands();
    good.send(request::Ping{7});
    context.run_for(std::chrono::milliseconds(200));
    CHECK(good.receive(4) == "\7\0\0\0"sv);
    CHECK(server->keyspace().key_count() == 0);
    CHECK(server->connection_count() == 1);
    server->close();
  }

  TEST_CASE("who is at the other end is answered again and again") {
    RunningServer server(gated());
    auto listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    SocketOwners owners(listener.get());
    REQUIRE(owners.can_answer());
    RawClient client(local_port(listener.get()).value());
    Fd accepted;
    while (!accepted) accepted = accept_from(listener.get());
    for (int i = 0; i < 2000; ++i) {
      PeerProcess peer = owners.peer_of(accepted.get());
      REQUIRE(peer.is == PeerProcess::Is::Known);
      REQUIRE(peer.user == ::geteuid());
    }
  }
}
