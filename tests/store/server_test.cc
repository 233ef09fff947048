// SPDX-License-Identifier: BSD-3-Clause
#include "store/server.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <string>
#include <utility>
#include <vector>

#include "store/base/fd.h"
#include "store/socket.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"

using namespace ddprun::store;
using ddprun::Fd;
using namespace std::chrono_literals;
using namespace std::string_view_literals;
using ddprun::test::client_of;
using ddprun::test::RawClient;
using ddprun::test::RunningServer;
namespace asio = boost::asio;

namespace {

const std::array kKey{"/k"sv};

}  // namespace

TEST_SUITE("store/server") {
  TEST_CASE("a client shakes hands, and what it sets another gets") {
    RunningServer server;
    RawClient writer = client_of(server);
    CHECK(writer.send(request::Ping{4242}).receive(4) == "\x92\x10\0\0"sv);
    writer.send(request::Set{"/k", "v"}).send(request::GetNumKeys{});
    CHECK(writer.receive_number() == 1);
    CHECK(client_of(server).send(request::Get{"/k"}).receive_bytes() == "v");
  }

  TEST_CASE("a wait ends when the key comes, and not before") {
    RunningServer server;
    RawClient waiter = client_of(server);
    waiter.send(request::Wait{kKey});
    REQUIRE(server.has_waiters(1));
    CHECK(waiter.is_silent());
    client_of(server).send(request::Set{"/k", "v"});
    CHECK(waiter.receive_byte() == 0);
  }

  TEST_CASE("a request behind an outstanding wait is answered at once") {
    RunningServer server;
    RawClient client = client_of(server);
    client.send(request::Wait{kKey}).send(request::Ping{1});
    CHECK(client.receive(4) == "\1\0\0\0"sv);
    CHECK(client.send(request::CancelWait{}).receive_byte() == kWaitCancelled);
    CHECK(client.send(request::Ping{2}).receive(4) == "\2\0\0\0"sv);
  }

  TEST_CASE("a handshake cut in two segments is accepted (torch closes the client)") {
    RunningServer server;
    RawClient client(server.port());
    client.send("\x00\xce"sv);
    REQUIRE(server.has_connections(1));
    client.send("\xf7\x85\x3c"sv);
    CHECK(client.send(request::Ping{1}).receive(4) == "\1\0\0\0"sv);
  }

  TEST_CASE("a peer without a handshake is closed at its first byte (torch serves it)") {
    RunningServer server;
    RawClient client(server.port());
    client.send("\x07"sv);
    CHECK(client.is_closed());
    REQUIRE(server.log().size() == 1);
    CHECK(server.log()[0].starts_with("disconnected 127.0.0.1:"));
    CHECK(server.log()[0].ends_with(": the first byte is not a handshake's"));
  }

  TEST_CASE("a mute peer is closed when its time is up (torch keeps it for ever)") {
    RunningServer server({.handshake_timeout = 50ms});
    RawClient good = client_of(server);
    RawClient mute(server.port());
    CHECK(mute.is_closed());
    CHECK(good.send(request::Ping{1}).receive(4) == "\1\0\0\0"sv);
  }

  TEST_CASE("a client that breaks the rules is closed, and the others notice nothing") {
    RunningServer server;
    RawClient good = client_of(server);
    RawClient bad = client_of(server);
    bad.send("\x13"sv);
    CHECK(bad.is_closed());
    RawClient adder = client_of(server);
    adder.send(request::Set{"/k", "no number"}).send(request::Add{"/k", 1});
    CHECK(adder.is_closed());
    CHECK(good.send(request::Get{"/k"}).receive_bytes() == "no number");
    CHECK(server.log().size() == 2);
  }

  TEST_CASE("a client that dies while it waits is forgotten") {
    RunningServer server;
    {
      RawClient waiter = client_of(server);
      waiter.send(request::Wait{kKey});
      REQUIRE(server.has_waiters(1));
    }
    CHECK(server.has_waiters(0));
    CHECK(server.has_connections(0));
  }

  TEST_CASE("a client that reads nothing costs a bounded amount, and is served when it reads") {
    RunningServer server({.max_unread_bytes = 1 << 20});
    constexpr int kCount = 400;
    const std::string value(1 << 20, 'v');
    RawClient reader = client_of(server);
    reader.send(request::Set{"/k", value}).send(request::GetNumKeys{});
    REQUIRE(reader.receive_number() == 1);
    for (int i = 0; i < kCount; ++i) reader.send(request::Get{"/k"});
    bool is_served = client_of(server).send(request::Get{"/k"}).receive_bytes() == value;
    CHECK(is_served);
    for (int i = 0; i < kCount; ++i) {
      bool is_right = reader.receive_bytes() == value;
      REQUIRE(is_right);
    }
    CHECK(reader.send(request::Ping{7}).receive(4) == "\7\0\0\0"sv);
  }

  TEST_CASE("a client that goes on reading nothing is closed when its time is up") {
    RunningServer server({.max_unread_bytes = 1000, .unread_timeout = 50ms});
    RawClient other = client_of(server);
    other.send(request::Set{"k", std::string(1 << 20, 'v')}).send(request::GetNumKeys{});
    REQUIRE(other.receive_number() == 1);
    RawClient mute = client_of(server);
    for (int i = 0; i < 100; ++i) mute.send(request::Get{"k"});
    REQUIRE(server.becomes_true([&](Server&) { return !server.log().empty(); }));
    CHECK(server.has_connections(1));
    CHECK(server.log().size() == 1);
    CHECK(server.log()[0].find(" bytes of replies unread") != std::string::npos);
    CHECK(other.send(request::Ping{7}).receive(4) == "\7\0\0\0"sv);
  }

  TEST_CASE("over HTTP the server shows its health, its metrics, and who waits for what") {
    RunningServer server;
    RawClient waiter = client_of(server);
    waiter.send(request::Add{"init/", 1}).send(request::Ping{4242}).send(request::Wait{kKey});
    REQUIRE(server.has_waiters(1));
    auto page = [&](std::string_view request_line) {
      RawClient browser(server.port());
      browser.send(std::string_view(std::string(request_line) + "\r\nHost: x\r\n\r\n"));
      return browser.receive_all();
    };
    CHECK(page("GET /healthz HTTP/1.1").ends_with("\r\n\r\nok\n"));
    CHECK(page("HEAD /healthz HTTP/1.1").ends_with("Connection: close\r\n\r\n"));
    CHECK(page("GET /metrics HTTP/1.0").find("\nddprun_store_waits 1\n") != std::string::npos);
    std::string status = page("GET /status HTTP/1.1");
    CHECK(status.find("\"joined\": \"1\"") != std::string::npos);
    CHECK(status.find("\"pid\": 4242") != std::string::npos);
    CHECK(status.find("\"missing\": [\"/k\"]") != std::string::npos);
    CHECK(page("GET /other HTTP/1.1").starts_with("HTTP/1.1 404 "));
    CHECK(page("POST /status HTTP/1.1").starts_with("HTTP/1.1 405 "));
    CHECK(page("SSH-2.0-x") == "");
    CHECK(server.has_connections(1));
    client_of(server).send(request::Set{"/k", "v"});
    CHECK(waiter.receive(8 + 4 + 1).back() == kStopWaiting);
  }

  TEST_CASE("who waits in a reserved namespace is no worker, and is not listed") {
    RunningServer server;
    server.ask([](Server& store) {
      store.reserve_namespace("runs");
      return 0;
    });
    RawClient node = client_of(server);
    CHECK(node.send(request::EnterNamespace{"runs"}).receive_byte() == kReady);
    node.send(request::Ping{17}).send(request::Wait{kKey});
    RawClient member = client_of(server);
    CHECK(member.send(request::EnterNamespace{"run7"}).receive_byte() == kReady);
    member.send(request::Ping{18}).send(request::Wait{kKey});
    auto waits = [](Server& store) { return store.namespaces().wait_count() == 2; };
    REQUIRE(server.becomes_true(waits));
    auto waiters = server.ask([](Server& store) { return store.waiters(); });
    REQUIRE(waiters.size() == 1);
    CHECK(waiters[0].pid == 18);
    CHECK(waiters[0].namespace_name == "run7");
  }

  TEST_CASE("without pages, HTTP is closed like any other stranger") {
    RunningServer server({.serves_http = false});
    RawClient browser(server.port());
    browser.send("GET /healthz HTTP/1.1\r\n\r\n"sv);
    CHECK(browser.is_closed());
  }

  TEST_CASE("with nothing but pages, a client of the store is closed") {
    RunningServer server({.serves_clients = false});
    RawClient browser(server.port());
    browser.send("GET /healthz HTTP/1.1\r\n\r\n"sv);
    CHECK(browser.receive_all().starts_with("HTTP/1.1 200 OK"));
    RawClient client(server.port());
    client.send(request::Validate{});
    CHECK(client.is_closed());
  }

  TEST_CASE("an announced client that is missing is on the page, by name") {
    RunningServer server;
    RawClient launcher = client_of(server);
    RawClient early = client_of(server);
    CHECK(early.send(request::Ping{100}).receive(4) == "\x64\0\0\0"sv);
    launcher.send(request::EnterNamespace{"run7"}).send(request::Expect{"", 3});
    for (std::int64_t rank = 0; rank < 3; ++rank) {
      launcher.send(request::Expect{"rank " + std::to_string(rank), 100 + rank});
    }
    CHECK(launcher.receive(5) == std::string(5, '\0'));
    {
      RawClient worker = client_of(server);  // it came, if only for a moment
      CHECK(worker.send(request::Ping{101}).receive(4) == "\x65\0\0\0"sv);
    }
    auto status = [&] {
      RawClient browser(server.port());
      browser.send("GET /status HTTP/1.1\r\n\r\n"sv);
      return browser.receive_all();
    };
    CHECK(
        status().find("{\"world_size\": 3, \"announced\": 3, \"missing_count\": 1, \"missing\": [\n"
                      "  {\"name\": \"rank 2\", \"host\": \"127.0.0.1\", \"pid\": 102}]}") !=
        std::string::npos);
    { RawClient gone = std::move(launcher); }
    REQUIRE(server.has_connections(1));
    CHECK(status().find("\"announced\": 0") != std::string::npos);
  }

  TEST_CASE("announcements count as stored, and of those without room no notice is taken") {
    ServerConfig config;
    config.keyspace.max_bytes = 100'000;
    RunningServer server(std::move(config));
    constexpr std::size_t kSent = 1000;
    auto stored = [&] {
      return server.ask([](Server& store) { return store.namespaces().usage().bytes; });
    };
    {
      RawClient launcher = client_of(server);
      for (std::size_t i = 0; i < kSent; ++i) {
        launcher.send(request::Expect{"rank " + std::to_string(i), 7});
      }
      CHECK(launcher.receive(kSent) == std::string(kSent, '\0'));
      CHECK(stored() > 90'000);
      CHECK(stored() <= 100'000);
    }
    REQUIRE(server.has_connections(0));
    CHECK(stored() == 0);
  }

  TEST_CASE("a namespace of its own hides a client's keys from those in the common one") {
    RunningServer server;
    RawClient common = client_of(server);
    RawClient member = client_of(server);
    common.send(request::Add{"/k", 1});
    CHECK(common.receive_number() == 1);
    CHECK(member.send(request::EnterNamespace{"run7"}).receive_byte() == kReady);
    CHECK(member.send(request::Add{"/k", 5}).receive_number() == 5);
    CHECK(common.send(request::Get{"/k"}).receive_bytes() == "1");
    RawClient other = client_of(server);
    other.send(request::EnterNamespace{"run7"}).send(request::Get{"/k"});
    CHECK(other.receive_byte() == kReady);
    CHECK(other.receive_bytes() == "5");
    CHECK(other.send(request::DeleteKey{"/k"}).receive_number() == 1);
    auto count = [](Server& s) { return s.namespaces().named_count(); };
    CHECK(server.ask(count) == 1);
    { RawClient gone[] = {std::move(member), std::move(other)}; }
    CHECK(server.becomes_true([](Server& s) { return s.namespaces().named_count() == 0; }));
  }

  TEST_CASE(
      "renewing the common namespace ends its clients at once, and those in a namespace live on") {
    RunningServer server;
    RawClient member = client_of(server);
    CHECK(member.send(request::EnterNamespace{"run7"}).receive_byte() == kReady);
    RawClient waiter = client_of(server);
    RawClient writer = client_of(server);
    RawClient early(server.port());
    waiter.send(request::Wait{kKey});
    writer.send(request::Set{"/old", "v"}).send(request::LastWill{"/q", "lost"});
    CHECK(writer.receive_byte() == kReady);
    writer.send("\x03"sv);  // and half a request, which is held
    REQUIRE(server.has_waiters(1));
    REQUIRE(server.has_connections(4));
    server.ask([](Server& s) {
      s.renew_common_namespace();
      return 0;
    });
    CHECK(waiter.is_closed());
    CHECK(writer.is_closed());
    CHECK(server.has_connections(2));
    CHECK(server.has_waiters(0));
    CHECK(early.shake_hands().send(request::GetNumKeys{}).receive_number() == 0);
    CHECK(early.send(request::QueueLen{"/q"}).receive_number() == 0);
    CHECK(member.send(request::Add{"/k", 1}).receive_number() == 1);
    CHECK(server.ask([](Server& s) { return s.keyspace().bytes(); }) == 0);
  }

  // So many names that the server takes several steps; see Keyspace::begin().
  TEST_CASE("large requests are answered in order with those around them, and others in between") {
    RunningServer server;
    RawClient large = client_of(server);
    RawClient other = client_of(server);
    std::vector<std::string> names;
    for (int i = 0; i < 20'000; ++i) names.push_back("/" + std::to_string(i));
    std::vector<std::string_view> keys(names.begin(), names.end());
    std::vector<KeyValue> pairs;
    for (std::string_view key : keys) pairs.push_back({key, key});

    large.send(request::Wait{keys}).send(request::Ping{1}).send(request::CancelWait{});
    CHECK(large.receive(4) == "\1\0\0\0"sv);
    CHECK(large.receive_byte() == kWaitCancelled);
    large.send(request::MultiSet{pairs}).send(request::GetNumKeys{});
    other.send(request::Wait{keys});
    CHECK(large.receive_number() == 20'000);
    CHECK(other.receive_byte() == kStopWaiting);
    CHECK(other.send(request::Check{keys}).receive_byte() == kReady);
    large.send(request::MultiGet{keys}).send(request::ListKeys{}).send(request::Ping{2});
    bool are_right = true;
    for (const std::string& name : names) are_right &= large.receive_bytes() == name;
    CHECK(are_right);
    REQUIRE(large.receive_number() == 20'000);
    for (std::size_t i = 0; i < names.size(); ++i) are_right &= !large.receive_bytes().empty();
    CHECK(are_right);
    CHECK(large.receive(4) == "\2\0\0\0"sv);
  }

  TEST_CASE("a large multi_set is applied though its sender leaves, and a renewal forgets it") {
    RunningServer server;
    std::vector<std::string> names;
    for (int i = 0; i < 50'000; ++i) names.push_back("/" + std::to_string(i));
    std::vector<KeyValue> pairs;
    for (const std::string& name : names) pairs.push_back({name, "v"});
    client_of(server).send(request::MultiSet{pairs});
    CHECK(server.becomes_true([](Server& s) { return s.keyspace().key_count() == 50'000; }));
    CHECK(server.has_connections(0));

    RawClient large = client_of(server);
    REQUIRE(large.send(request::Ping{7}).receive(4) == "\7\0\0\0"sv);
    large.send(request::MultiSet{pairs}).send(request::GetNumKeys{});
    server.ask([](Server& s) {
      s.renew_common_namespace();
      return 0;
    });
    CHECK(server.has_connections(0));
    RawClient next = client_of(server);
    CHECK(next.send(request::Ping{7}).receive(4) == "\7\0\0\0"sv);
  }

  TEST_CASE("closing the server frees those who wait at once") {
    RunningServer server;
    RawClient waiter = client_of(server);
    waiter.send(request::Wait{kKey});
    REQUIRE(server.has_waiters(1));
    server.ask([](Server& s) {
      s.close();
      s.close();
      return 0;
    });
    CHECK(waiter.is_closed());
  }

  TEST_CASE("a closed server may be destroyed while its handlers are still queued") {
    asio::io_context context;
    auto server =
        Server::listen(context.get_executor(), {.listen = {.host = "127.0.0.1", .port = 0}})
            .value();
    RawClient waiter(server->port());
    waiter.shake_hands().send(request::Wait{kKey});
    while (server->keyspace().wait_count() == 0) context.run_one();
    server->close();
    server.reset();
    context.run();
    CHECK(waiter.is_closed());
  }

  TEST_CASE("a port that is taken is told with the address") {
    RunningServer server;
    asio::io_context context;
    auto second = Server::listen(context.get_executor(),
                                 {.listen = {.host = "127.0.0.1", .port = server.port()}});
    REQUIRE(second.has_error());
    CHECK(to_string(second.error()) ==
          "bind 127.0.0.1:" + std::to_string(server.port()) + ": Address already in use");
  }

  TEST_CASE("a name is not looked up to listen on it") {
    asio::io_context context;
    auto server = Server::listen(context.get_executor(), {.listen = {.host = "node0", .port = 0}});
    REQUIRE(server.has_error());
    CHECK(to_string(server.error()) ==
          "cannot listen on 'node0': not a numeric address, and names are not looked up");
  }

  TEST_CASE("the wildcard of IPv6 takes IPv4 as well") {
    RunningServer server({.listen = {.host = "::", .port = 0}});
    RawClient v4(server.port());
    RawClient v6(server.port(), "::1");
    CHECK(v4.shake_hands().send(request::Add{"/k", 1}).receive_number() == 1);
    CHECK(v6.shake_hands().send(request::Add{"/k", 1}).receive_number() == 2);
    v4.send("\xff"sv);
    CHECK(v4.is_closed());
    CHECK(server.log().at(0).starts_with("disconnected 127.0.0.1:"));
  }

  TEST_CASE("a peer whose machine is lost without a word is found out by keep-alive") {
    auto listener = listen_on({.host = "127.0.0.1", .port = 0}).value();
    RawClient client(local_port(listener.get()).value());
    Fd accepted = accept_from(listener.get());
    REQUIRE(bool(accepted));
    auto option = [&](int level, int name) {
      int value = 0;
      socklen_t size = sizeof value;
      ::getsockopt(accepted.get(), level, name, &value, &size);
      return value;
    };
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) +
              option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) ==
          120);
  }

  TEST_CASE("a server raises the limit of descriptors, and says where few can queue up") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur = 256;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
    RunningServer server({.expected_clients = std::size_t{1} << 40});
    rlimit after{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &after) == 0);
    CHECK(after.rlim_cur == std::min<rlim_t>(before.rlim_max, 1 << 20));
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(server.log().size() == 1);
    CHECK(server.log()[0].starts_with("only "));
    CHECK(server.log()[0].find("net.core.somaxconn") != std::string::npos);
  }

  TEST_CASE("no descriptor of the server is inherited by a program that the process starts") {
    auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
    std::vector<bool> was_open;
    for (int fd = 0; fd < 256; ++fd) was_open.push_back(is_open(fd));
    RunningServer server;
    RawClient client = client_of(server);
    CHECK(client.send(request::Ping{1}).receive(4) == "\1\0\0\0"sv);
    int open_count = 0;
    for (int fd = 0; fd < 256; ++fd) {
      if (was_open[static_cast<std::size_t>(fd)] || !is_open(fd)) continue;
      CAPTURE(fd);
      CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
      ++open_count;
    }
    CHECK(open_count >= 3);  // listener, connection, client
  }
}
