// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/pages.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include <nlohmann/json.hpp>
#include <string>

#include "store/http.h"

using namespace ddprun::store;
using namespace std::chrono_literals;

TEST_SUITE("store/decide/pages") {
  TEST_CASE("the status is JSON that says what each client waits for, and how long") {
    Metrics metrics{.connections = 3,
                    .keys = 2,
                    .bytes = 100,
                    .waits = 1,
                    .namespaces = 4,
                    .refused = 6,
                    .turned_away = 8};
    JoinProgress join_progress{.joined = "7",
                               .world_size = 8,
                               .expected_count = 3,
                               .missing_count = 2,
                               .missing = {{"rank 3", "10.0.0.7", 4242}, {"rank \"4\"", "h", 7}}};
    Waiter waiter{.peer = "10.0.0.7:40112",
                  .pid = 4242,
                  .namespace_name = "run7",
                  .missing = {"/a", "/\"b\\\n\xff"},
                  .missing_count = 12,
                  .since = 1500ms};
    auto status = nlohmann::json::parse(status_page(metrics, join_progress, {waiter, Waiter{}}));
    CHECK(status["connections"] == 3);
    CHECK(status["keys"] == 2);
    CHECK(status["namespaces"] == 4);
    CHECK(status["refused"] == 6);
    CHECK(status["turned_away"] == 8);
    CHECK(status["joined"] == "7");
    CHECK(status["expected"]["world_size"] == 8);
    CHECK(status["expected"]["announced"] == 3);
    CHECK(status["expected"]["missing_count"] == 2);
    CHECK(status["expected"]["missing"][0]["name"] == "rank 3");
    CHECK(status["expected"]["missing"][0]["host"] == "10.0.0.7");
    CHECK(status["expected"]["missing"][1]["pid"] == 7);
    CHECK(nlohmann::json::parse(status_page({}, {}, {}))["expected"]["world_size"].is_null());
    REQUIRE(status["waiting"].size() == 2);
    auto first = status["waiting"][0];
    CHECK(first["peer"] == "10.0.0.7:40112");
    CHECK(first["pid"] == 4242);
    CHECK(first["namespace"] == "run7");
    CHECK(first["waiting_ms"] == 1500);
    CHECK(first["missing_count"] == 12);
    CHECK(first["missing"][1] == "/\"b\\\n\u00ff");
    CHECK(status["waiting"][1]["pid"].is_null());
  }

  TEST_CASE("the metrics are in Prometheus's form, each named, typed and explained") {
    Metrics metrics{.keys = 5};
    metrics.requests[3] = 17;
    std::string page = metrics_page(metrics);
    CHECK(page.find("\n# TYPE ddprun_store_keys gauge\nddprun_store_keys 5\n") !=
          std::string::npos);
    CHECK(page.find("\nddprun_store_requests_total{operation=\"get\"} 17\n") != std::string::npos);
    CHECK(page.find("operation=\"\"") == std::string::npos);
  }

  TEST_CASE("OpenMetrics declares a counter without its _total, and says where it ends") {
    CHECK(to_open_metrics("# HELP a_total As a_total.\n# TYPE a_total counter\na_total{x=\"y\"} 1\n"
                          "# HELP b B.\n# TYPE b gauge\nb 2\n") ==
          "# HELP a As a_total.\n# TYPE a counter\na_total{x=\"y\"} 1\n"
          "# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n");
    CHECK(to_open_metrics(metrics_page({})).ends_with("# EOF\n"));
  }

  TEST_CASE("the status ends where further fields may follow") {
    CHECK(status_page({}, {}, {}).ends_with("]}\n"));
  }
}

TEST_SUITE("store/http") {
  using State = HttpReader::State;

  TEST_CASE("a request is read wherever it is cut") {
    std::string bytes = "GET /status?full=1 HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
      CAPTURE(cut);
      HttpReader reader;
      State state = reader.feed(bytes.substr(0, cut));
      if (cut < bytes.size()) REQUIRE(state == State::NeedMore);
      if (state == State::NeedMore) state = reader.feed(bytes.substr(cut));
      REQUIRE(state == State::Done);
      REQUIRE(reader.method() == "GET");
      REQUIRE(reader.target() == "/status");
      REQUIRE(reader.host() == "x");
      REQUIRE(reader.accepts("*/*"));
      REQUIRE_FALSE(reader.accepts("application/openmetrics-text"));
    }
  }

  TEST_CASE("what is no HTTP, or too much of it, is malformed") {
    CHECK(HttpReader().feed("SSH-2.0-OpenSSH\r\n") == State::Malformed);
    CHECK(HttpReader().feed("\x16\x03\x01") == State::Malformed);
    CHECK(HttpReader().feed("GET / HTTP/1.1 \r\n") == State::Malformed);
    CHECK(HttpReader().feed("GET / HTTP/1.1\r\nHost x\r\n\r\n") == State::Malformed);
    HttpReader reader;
    State state = reader.feed("GET / HTTP/1.1\r\n");
    for (int i = 0; i < 5000 && state == State::NeedMore; ++i) state = reader.feed("X: y\r\n");
    CHECK(state == State::Malformed);
    HttpReader endless;
    state = State::NeedMore;
    for (int i = 0; i < 1000 && state == State::NeedMore; ++i)
      state = endless.feed(std::string(100, 'A'));
    CHECK(state == State::Malformed);
  }

  TEST_CASE("a head that has not arrived in full takes the room that it says") {
    std::string half = "GET / HTTP/1.1\r\n";
    while (half.size() < 8'000) half += "a:\r\n";
    HttpReader reader;
    std::size_t before = ::mallinfo2().uordblks;
    REQUIRE(reader.feed(half) == State::NeedMore);
    CHECK(reader.held_bytes() >= half.size());
    CHECK(::mallinfo2().uordblks - before <= reader.held_bytes() + 1024);
  }

  TEST_CASE("the head of a response has the length of its body") {
    Page page{.status = 404};
    std::string head =
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n"
        "Content-Length: 8\r\nServer: ddprun\r\nCache-Control: no-store\r\nConnection: "
        "close\r\n\r\n";
    CHECK(http_head(page, 8) == head);
    page.retry_after_s = 3;
    CHECK(http_head(page, 8).find("\r\nRetry-After: 3\r\n") != std::string::npos);
  }
}
