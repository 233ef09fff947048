// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/decide/messages.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

using namespace ddprun;
using namespace ddprun::rendezvous::etcd;
using namespace std::chrono_literals;
using Json = nlohmann::json;

TEST_CASE("etcd messages: a transaction as the gateway takes it") {
  Txn txn;
  txn.conditions = {{.key = "a"}, {.key = "b", .revision = 7}};
  txn.puts = {{.key = "a", .value = "x"},
              {.key = "c", .value = std::string("\0\xff", 2), .lease = 9}};
  txn.removals = {"d"};
  CHECK(Json::parse(encode_txn(txn)) == Json::parse(R"({
    "compare": [{"key": "YQ==", "result": "EQUAL", "target": "MOD", "mod_revision": "0"},
                {"key": "Yg==", "result": "EQUAL", "target": "MOD", "mod_revision": "7"}],
    "success": [{"request_put": {"key": "YQ==", "value": "eA=="}},
                {"request_put": {"key": "Yw==", "value": "AP8=", "lease": "9"}},
                {"request_delete_range": {"key": "ZA=="}}]})"));
}

TEST_CASE("etcd messages: keys that are read at one moment") {
  CHECK(Json::parse(encode_read({"a", "b"})) == Json::parse(R"({"success": [
      {"request_range": {"key": "YQ=="}}, {"request_range": {"key": "Yg=="}}]})"));
}

TEST_CASE("etcd messages: leases and a login as the gateway takes them") {
  CHECK(Json::parse(encode_grant(2500ms)) == Json{{"TTL", "3"}});
  CHECK(Json::parse(encode_grant(0ms)) == Json{{"TTL", "1"}});
  CHECK(Json::parse(encode_lease(7587862094622109952)) == Json{{"ID", "7587862094622109952"}});
  CHECK(Json::parse(encode_login("me", "a\"b")) == Json{{"name", "me"}, {"password", "a\"b"}});
}

TEST_CASE("etcd messages: what a transaction has done or read") {
  auto done = decode_txn(R"({"header":{},"succeeded":true,"responses":[{"response_put":{}}]})");
  REQUIRE(done.has_value());
  CHECK(done->has_happened);
  CHECK(done->read.empty());
  auto not_done = decode_txn(R"({"header":{},"responses":[{"response_range":{"header":{},
      "kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"4","value":"AP8=","lease":"12"}],"count":"1"}},
      {"response_range":{"header":{}}}]})");
  REQUIRE(not_done.has_value());
  CHECK_FALSE(not_done->has_happened);
  REQUIRE(not_done->read.size() == 1);
  CHECK(not_done->read[0] ==
        KeyValue{.key = "a", .value = std::string("\0\xff", 2), .lease = 12, .revision = 4});
}

TEST_CASE("etcd messages: what is no answer of etcd is refused") {
  for (const char* text :
       {"", "[]", "{}", "404 page not found", R"({"header":{},"succeeded":"yes"})",
        R"({"header":{},"responses":[{"response_range":{"kvs":[{"key":"?"}]}}]})",
        R"({"header":{},"responses":[{"response_range":{"kvs":[7]}}]})"}) {
    CAPTURE(text);
    auto reply = decode_txn(text);
    REQUIRE_FALSE(reply.has_value());
    CHECK(reply.error().code == Errc::Protocol);
  }
  for (const char* text : {"", "[]", "{}", R"({"ID":"x","TTL":"1"})", R"({"ID":"1","TTL":"9e9"})",
                           R"({"ID":"1","TTL":"9000000000000"})"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_lease(text).has_value());
  }
  for (const char* text : {"", "[]", "{}", R"({"token":""})", R"({"token":"a\r\nHost: b"})"}) {
    CAPTURE(text);
    CHECK_FALSE(decode_token(text).has_value());
  }
}

TEST_CASE("etcd messages: a lease that is granted, kept alive, and over") {
  auto granted = decode_lease(R"({"header":{},"ID":"758","TTL":"10"})");
  REQUIRE(granted.has_value());
  CHECK(granted->id == 758);
  CHECK(granted->ttl == 10s);
  auto kept = decode_lease(R"({"result":{"header":{},"ID":"758","TTL":"9"}})");
  REQUIRE(kept.has_value());
  CHECK(kept->ttl == 9s);
  auto over = decode_lease(R"({"result":{"header":{},"ID":"758"}})");
  REQUIRE(over.has_value());
  CHECK(over->ttl == 0s);
}

TEST_CASE("etcd messages: why a member refuses, and whether another one may not") {
  struct Case {
    unsigned status;
    const char* body;
    Refusal kind;
    const char* said;
  };
  for (const Case& c : {
           Case{503, R"({"error":"etcdserver: no leader","code":14})", Refusal::TryNext,
                "etcdserver: no leader (HTTP status 503)"},
           Case{401, R"({"error":"etcdserver: invalid auth token","code":16})", Refusal::LogInAgain,
                "etcdserver: invalid auth token (HTTP status 401)"},
           Case{400, R"({"error":"etcdserver: user name is empty","message":"m","code":3})",
                Refusal::Final, "m (HTTP status 400)"},
           Case{400, R"({"error":"etcdserver: authentication is not enabled","code":9})",
                Refusal::NoAuth, "etcdserver: authentication is not enabled (HTTP status 400)"},
           Case{404, R"({"error":"etcdserver: requested lease not found","code":5})",
                Refusal::LeaseIsOver, "etcdserver: requested lease not found (HTTP status 404)"},
           Case{404, "404 page not found\n", Refusal::Final,
                "404 page not found (HTTP status 404)"},
           Case{403, R"({"error":"etcdserver: permission denied","code":7})", Refusal::Final,
                "etcdserver: permission denied (HTTP status 403)"},
           Case{429, R"({"error":"etcdserver: mvcc: database space exceeded","code":8})",
                Refusal::TryNext, "etcdserver: mvcc: database space exceeded (HTTP status 429)"},
           Case{429, R"({"error":"etcdserver: too many requests","code":8})", Refusal::TryNext,
                "etcdserver: too many requests (HTTP status 429)"},
           Case{502, "", Refusal::TryNext, "HTTP status 502"},
           Case{500, R"({"error":{"grpc_code":14,"message":"a\u001bb"}})", Refusal::TryNext,
                "a\\x1bb (HTTP status 500)"},
       }) {
    CAPTURE(c.body);
    RefusalText refusal = read_refusal(c.status, c.body);
    CHECK(refusal.kind == c.kind);
    CHECK(refusal.said == c.said);
  }
}
