// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/http.h"

#include <doctest/doctest.h>

#include <string>

using namespace ddprun::rendezvous::etcd;
using State = HttpResponseReader::State;

TEST_CASE("etcd http: a request") {
  std::string text = http_request({.host = "::1", .port = 2379}, "/v3/kv/txn", "{}", "T.1");
  CHECK(text.starts_with("POST /v3/kv/txn HTTP/1.1\r\nHost: [::1]:2379\r\n"));
  CHECK(text.find("\r\nAuthorization: T.1\r\n") != std::string::npos);
  CHECK(text.find("\r\nConnection: close\r\n") != std::string::npos);
  CHECK(text.ends_with("\r\nContent-Length: 2\r\n\r\n{}"));
  CHECK(http_request({.host = "a", .port = 1}, "/", "", "").find("Authorization") ==
        std::string::npos);
}

TEST_CASE("etcd http: a response, wherever it is cut") {
  for (const std::string& text : {
           std::string("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
           std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"),
       }) {
    for (std::size_t step = 1; step <= text.size(); ++step) {
      CAPTURE(step);
      HttpResponseReader reader;
      State state = State::NeedMore;
      for (std::size_t at = 0; at < text.size(); at += step) {
        REQUIRE(state == State::NeedMore);
        state = reader.feed(std::string_view(text).substr(at, step));
      }
      REQUIRE(state == State::Done);
      HttpResponse response = reader.take();
      CHECK(response.status == 200);
      CHECK(response.body == "hello");
    }
  }
}

TEST_CASE("etcd http: a response that ends with the connection") {
  HttpResponseReader reader;
  REQUIRE(reader.feed("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request") ==
          State::NeedMore);
  REQUIRE(reader.end() == State::Done);
  HttpResponse response = reader.take();
  CHECK(response.status == 400);
  CHECK(response.body == "Client sent an HTTP request");
}

TEST_CASE("etcd http: what is cut off, too large or no HTTP is malformed") {
  HttpResponseReader cut;
  REQUIRE(cut.feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel") == State::NeedMore);
  CHECK(cut.end() == State::Malformed);
  HttpResponseReader nothing;
  CHECK(nothing.end() == State::Malformed);
  CHECK(HttpResponseReader().feed("SSH-2.0-OpenSSH_9.2\r\n") == State::Malformed);
  CHECK(HttpResponseReader().feed("HTTP/1.1 200 OK\r\nX: " + std::string(9000, 'x')) ==
        State::Malformed);
  CHECK(HttpResponseReader().feed("HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n") ==
        State::Malformed);
}
