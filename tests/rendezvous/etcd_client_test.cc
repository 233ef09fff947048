// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/client.h"

#include <doctest/doctest.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "store/event.h"
#include "store/socket.h"
#include "store/task_group.h"
#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous::etcd;
using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

std::string answer(unsigned status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " X\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string refusal(unsigned status, int code, const std::string& text) {
  return answer(status, R"({"error":")" + text + R"(","code":)" + std::to_string(code) + "}");
}

const std::string kDone = answer(200, R"({"header":{},"succeeded":true})");
const std::string kNoLeader = refusal(503, 14, "etcdserver: no leader");
const std::string kNever;             // it takes the request and says nothing
const std::string kCloses = "close";  // it takes the request and closes the connection

// One member, which answers each request with the next of its script.
class Member {
 public:
  explicit Member(asio::io_context& context)
      : context_(context),
        tasks_(context.get_executor(), [](std::exception_ptr) { FAIL("a member has failed"); }),
        acceptor_(context) {
    Fd socket = store::listen_on({.host = "127.0.0.1", .port = 0}).value();
    at = store::local_endpoint(socket.get()).value();
    acceptor_.assign(tcp::v4(), socket.release());
    tasks_.spawn(serve());
  }
  ~Member() {
    close();
    bool has_ended = false;
    asio::co_spawn(context_, tasks_.join(), [&](std::exception_ptr) { has_ended = true; });
    CHECK(test::run_until(context_, [&] { return has_ended; }));
  }
  void close() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

  Endpoint at;
  std::deque<std::string> script;
  std::vector<std::string> requests;

 private:
  asio::awaitable<void> serve() {
    while (true) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (error) co_return;
      tasks_.spawn(serve_one(std::move(socket)));
    }
  }
  static bool is_whole(const std::string& request) {
    auto end = request.find("\r\n\r\n");
    auto length = request.find("Content-Length: ");
    if (end == std::string::npos || length == std::string::npos) return false;
    return request.size() - end - 4 == std::stoul(request.substr(length + 16));
  }
  asio::awaitable<void> serve_one(tcp::socket socket) {
    std::string request;
    while (!is_whole(request)) {
      char block[4096];
      auto [error, size] = co_await socket.async_read_some(asio::buffer(block), kTuple);
      if (error) co_return;
      request.append(block, size);
    }
    requests.push_back(request);
    REQUIRE(!script.empty());
    std::string text = script.front();
    script.pop_front();
    if (text == kCloses) co_return;
    if (text.empty()) {
      char byte = 0;
      co_await socket.async_read_some(asio::buffer(&byte, 1), kTuple);
      co_return;
    }
    co_await asio::async_write(socket, asio::buffer(text), kTuple);
  }

  asio::io_context& context_;
  store::TaskGroup tasks_;
  tcp::acceptor acceptor_;
};

MonoTime soon(Duration patience = 15s) {
  return std::chrono::steady_clock::now() + patience;
}

struct Etcd {
  explicit Etcd(std::size_t count = 3) {
    for (std::size_t i = 0; i < count; ++i) members.push_back(std::make_unique<Member>(context));
  }
  ClientConfig config() {
    ClientConfig config;
    for (const auto& member : members) config.members.push_back(member->at);
    return config;
  }
  template <class T>
  Result<T> outcome(store::Async<T> call) {
    std::optional<Result<T>> result;
    std::exception_ptr thrown;
    asio::co_spawn(context, std::move(call), [&](std::exception_ptr error, Result<T> value) {
      thrown = error;
      result = std::move(value);
    });
    REQUIRE(test::run_until(context, [&] { return result.has_value(); }));
    REQUIRE_FALSE(thrown);
    return std::move(*result);
  }

  asio::io_context context;
  std::vector<std::unique_ptr<Member>> members;
};

std::string target_of(const std::string& request) {
  return request.substr(5, request.find(' ', 5) - 5);
}
std::string body_of(const std::string& request) {
  return request.substr(request.find("\r\n\r\n") + 4);
}

}  // namespace

TEST_CASE("etcd client: the members are tried in turn, and the one that answered comes first") {
  Etcd etcd;
  etcd.members[0]->close();
  etcd.members[1]->script = {kNoLeader};
  etcd.members[2]->script = {kDone, kDone};
  Client client(etcd.context.get_executor(), etcd.config());
  Txn txn;
  txn.puts = {{.key = "a", .value = "b"}};
  for (int i = 0; i < 2; ++i) {
    auto reply = etcd.outcome(client.commit(txn, soon()));
    REQUIRE(reply.has_value());
    REQUIRE(reply->has_value());
    CHECK((*reply)->has_happened);
  }
  CHECK(etcd.members[1]->requests.size() == 1);
  REQUIRE(etcd.members[2]->requests.size() == 2);
  CHECK(target_of(etcd.members[2]->requests[1]) == "/v3/kv/txn");
  CHECK(body_of(etcd.members[2]->requests[1]) == encode_txn(txn));
}

TEST_CASE("etcd client: a member that does not answer costs its time, and no more") {
  Etcd etcd(2);
  etcd.members[0]->script = {kNever};
  etcd.members[1]->script = {kDone, kDone};
  Client client(etcd.context.get_executor(), etcd.config());
  CHECK(etcd.outcome(client.commit({}, soon(1s))).has_value());
  CHECK(etcd.outcome(client.commit({}, soon())).has_value());
  CHECK(etcd.members[0]->requests.size() == 1);
}

TEST_CASE("etcd client: where no member can, one line says what each has said") {
  Etcd etcd;
  etcd.members[0]->script = {kNoLeader};
  etcd.members[1]->script = {"SSH-2.0-OpenSSH_9.2\r\n"};
  etcd.members[2]->close();
  Client client(etcd.context.get_executor(), etcd.config());
  auto reply = etcd.outcome(client.commit({}, soon()));
  REQUIRE_FALSE(reply.has_value());
  CHECK(reply.error().code == Errc::TimedOut);
  CHECK(to_string(reply.error()) ==
        "no member of etcd can be used: " + to_string(etcd.members[0]->at) +
            ": etcdserver: no leader (HTTP status 503); " + to_string(etcd.members[1]->at) +
            " does not answer as an etcd (HTTP) does; connect to " +
            to_string(etcd.members[2]->at) + ": Connection refused");
}

TEST_CASE("etcd client: a member that closes the connection at once") {
  Etcd etcd(1);
  etcd.members[0]->script = {kCloses};
  Client client(etcd.context.get_executor(), etcd.config());
  auto reply = etcd.outcome(client.read({"a"}, soon()));
  REQUIRE_FALSE(reply.has_value());
  CHECK(to_string(reply.error()) ==
        "no member of etcd can be used: " + to_string(etcd.members[0]->at) +
            " has closed the connection without an answer, as an etcd that wants https does");
}

TEST_CASE("etcd client: what no member would do is not asked of the next") {
  Etcd etcd(2);
  etcd.members[0]->script = {refusal(400, 3, "etcdserver: user name is empty")};
  Client client(etcd.context.get_executor(), etcd.config());
  auto reply = etcd.outcome(client.read({"a"}, soon()));
  REQUIRE_FALSE(reply.has_value());
  CHECK(reply.error().code == Errc::InvalidInput);
  CHECK(to_string(reply.error()) ==
        to_string(etcd.members[0]->at) +
            ": etcdserver: user name is empty (HTTP status 400); this etcd "
            "asks for a user (user, password_file)");
  CHECK(etcd.members[1]->requests.empty());
}

TEST_CASE("etcd client: keys that are read") {
  Etcd etcd(1);
  etcd.members[0]->script = {
      answer(200, R"({"header":{},"succeeded":true,"responses":[{"response_range":{"header":{},
           "kvs":[{"key":"YQ==","value":"eA=="}],"count":"1"}}]})")};
  Client client(etcd.context.get_executor(), etcd.config());
  auto pairs = etcd.outcome(client.read({"a", "b"}, soon()));
  REQUIRE(pairs.has_value());
  REQUIRE(pairs->size() == 1);
  CHECK((*pairs)[0] == KeyValue{.key = "a", .value = "x"});
}

TEST_CASE("etcd client: leases") {
  Etcd etcd(1);
  etcd.members[0]->script = {
      answer(200, R"({"header":{},"ID":"7","TTL":"10"})"),
      answer(200, R"({"result":{"header":{},"ID":"7","TTL":"10"}})"),
      answer(200, R"({"result":{"header":{},"ID":"7"}})"),
      refusal(404, 5, "etcdserver: requested lease not found"),
      refusal(404, 5, "etcdserver: requested lease not found"),
  };
  Client client(etcd.context.get_executor(), etcd.config());
  auto lease = etcd.outcome(client.grant(10s, soon()));
  REQUIRE(lease.has_value());
  CHECK(lease->id == 7);
  CHECK(etcd.outcome(client.keep_alive(7, soon())).value().ttl == 10s);
  CHECK(etcd.outcome(client.keep_alive(7, soon())).value().ttl == 0s);
  Txn txn;
  txn.puts = {{.key = "a", .value = "b", .lease = 7}};
  auto reply = etcd.outcome(client.commit(txn, soon()));
  REQUIRE(reply.has_value());
  CHECK_FALSE(reply->has_value());
  std::vector<std::string> targets;
  for (const std::string& request : etcd.members[0]->requests)
    targets.push_back(target_of(request));
  CHECK(targets == std::vector<std::string>{"/v3/lease/grant", "/v3/lease/keepalive",
                                            "/v3/lease/keepalive", "/v3/kv/txn"});
}

TEST_CASE("etcd client: a user logs in, and again when the token is no longer known") {
  Etcd etcd(1);
  etcd.members[0]->script = {answer(200, R"({"header":{},"token":"T.1"})"),
                             kDone,
                             kDone,
                             refusal(401, 16, "etcdserver: invalid auth token"),
                             answer(200, R"({"header":{},"token":"T.2"})"),
                             kDone};
  ClientConfig config = etcd.config();
  config.user = "me";
  config.password = "secret";
  Client client(etcd.context.get_executor(), config);
  for (int i = 0; i < 3; ++i) CHECK(etcd.outcome(client.commit({}, soon())).has_value());
  const auto& requests = etcd.members[0]->requests;
  REQUIRE(requests.size() == 6);
  CHECK(target_of(requests[0]) == "/v3/auth/authenticate");
  CHECK(body_of(requests[0]) == encode_login("me", "secret"));
  for (int i : {1, 2, 3})
    CHECK(requests[i].find("\r\nAuthorization: T.1\r\n") != std::string::npos);
  CHECK(target_of(requests[4]) == "/v3/auth/authenticate");
  CHECK(requests[5].find("\r\nAuthorization: T.2\r\n") != std::string::npos);
}

TEST_CASE("etcd client: a user who cannot log in") {
  struct Case {
    std::string answer;
    std::string said;
  };
  for (const Case& c :
       {Case{refusal(400, 3, "etcdserver: authentication failed, invalid user ID or password"),
             "etcdserver: authentication failed, invalid user ID or password (HTTP status 400), "
             "for user 'me'"},
        Case{refusal(400, 9, "etcdserver: authentication is not enabled"),
             "etcdserver: authentication is not enabled (HTTP status 400); a user was given"}}) {
    Etcd etcd(2);
    etcd.members[0]->script = {c.answer};
    ClientConfig config = etcd.config();
    config.user = "me";
    config.password = "secret";
    Client client(etcd.context.get_executor(), config);
    auto reply = etcd.outcome(client.commit({}, soon()));
    REQUIRE_FALSE(reply.has_value());
    CHECK(reply.error().code == Errc::InvalidInput);
    CHECK(to_string(reply.error()) == to_string(etcd.members[0]->at) + ": " + c.said);
  }
}

TEST_CASE("etcd client: a token that is never known ends in an error, not in a loop") {
  Etcd etcd(1);
  const std::string unknown = refusal(401, 16, "etcdserver: invalid auth token");
  const std::string token = answer(200, R"({"header":{},"token":"T.1"})");
  etcd.members[0]->script = {token, unknown, token, unknown};
  ClientConfig config = etcd.config();
  config.user = "me";
  Client client(etcd.context.get_executor(), config);
  auto reply = etcd.outcome(client.commit({}, soon()));
  REQUIRE_FALSE(reply.has_value());
  CHECK(reply.error().code == Errc::TimedOut);
  CHECK(etcd.members[0]->requests.size() == 4);
}

TEST_CASE("etcd client: a file for TLS that is not there is named") {
  Etcd etcd(1);
  ClientConfig config = etcd.config();
  config.tls.emplace();
  config.tls->ca = "/nowhere/ca.pem";
  Client client(etcd.context.get_executor(), config);
  auto reply = etcd.outcome(client.commit({}, soon()));
  REQUIRE_FALSE(reply.has_value());
  CHECK(reply.error().code == Errc::InvalidInput);
  std::string said = to_string(reply.error());
  if (said.find("https needs OpenSSL") != std::string::npos) {
    MESSAGE("skipped: " << said);
  } else {
    CHECK(said.starts_with("the CA certificate /nowhere/ca.pem: "));
  }
}
