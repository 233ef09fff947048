// SPDX-License-Identifier: BSD-3-Clause
//
// Pages that take long, and those who follow them: what that costs others.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "store/page_source.h"
#include "store/server.h"
#include "tests/support/raw_client.h"
#include "tests/support/running_server.h"

using namespace ddprun;
using namespace ddprun::store;
using namespace std::chrono_literals;
using namespace std::string_view_literals;
using ddprun::test::RawClient;

namespace {

// A status of as many pieces as are wanted, each of so many bytes.
struct LongPages : PageSource {
  struct Text : PageText {
    Text(const LongPages& pages_) : pages(pages_) { ++pages.begun; }
    bool add(std::string& out) override {
      out += next == 0 ? "\"x\": \"" : std::string(pages.piece_bytes, 'x');
      ++pages.made;
      if (++next < pages.pieces) return true;
      out += '"';
      return false;
    }
    const LongPages& pages;
    int next = 0;
  };

  int pieces = 1000;
  std::size_t piece_bytes = 1;
  mutable int begun = 0;
  mutable int made = 0;

  std::uint64_t version() const override { return static_cast<std::uint64_t>(begun); }
  std::unique_ptr<PageText> status(Reader) const override { return std::make_unique<Text>(*this); }
  std::string metrics() const override { return ""; }
  std::optional<Page> page(const std::string&) const override { return std::nullopt; }
};

struct Pages {
  boost::asio::io_context context;
  LongPages source;
  std::unique_ptr<Server> server;

  explicit Pages(ServerConfig config = {}) {
    config.listen = {"127.0.0.1", 0};
    server = Server::listen(context.get_executor(), std::move(config)).value();
    server->show(&source);
  }
  ~Pages() { server->close(); }

  template <class Claim>
  bool run_until(Claim claim) {
    auto deadline = std::chrono::steady_clock::now() + ddprun::test::kLimit;
    while (!claim() && std::chrono::steady_clock::now() < deadline) context.run_one_for(1ms);
    return claim();
  }
  RawClient asks_for(const std::string& path) {
    RawClient client(server->port());
    client.send("GET " + path + " HTTP/1.1\r\n\r\n");
    return client;
  }
  static bool has_answer(const RawClient& client) {
    char first = 0;
    return ::recv(client.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }
};

}  // namespace

TEST_SUITE("store/server, long pages") {
  TEST_CASE_FIXTURE(Pages, "between two pieces of a page others are served") {
    RawClient client(server->port());
    client.shake_hands();
    REQUIRE(run_until([&] { return server->connection_count() == 1; }));
    RawClient browser = asks_for("/status");
    REQUIRE(run_until([&] { return source.made > 1; }));
    client.send(request::Add{"/n", 1});
    REQUIRE(run_until([&] { return has_answer(client); }));
    CHECK(source.made < source.pieces);
    REQUIRE(run_until([&] { return has_answer(browser); }));
    CHECK(source.made == source.pieces);
    CHECK(source.begun == 1);
  }

  TEST_CASE_FIXTURE(Pages, "who asks and goes before the page is made leaves nothing behind") {
    {
      RawClient browser = asks_for("/status");
      REQUIRE(run_until([&] { return source.made > 1; }));
    }
    REQUIRE(run_until([&] { return server->connection_count() == 0; }));
    RawClient browser = asks_for("/healthz");
    CHECK(run_until([&] { return has_answer(browser); }));
  }

  TEST_CASE("who follows stays, although it shakes no hands") {
    Pages pages({.handshake_timeout = 50ms});
    RawClient follower = pages.asks_for("/events");
    REQUIRE(pages.run_until([&] { return Pages::has_answer(follower); }));
    RawClient guest(pages.server->port());
    REQUIRE(pages.run_until([&] { return pages.server->connection_count() == 2; }));
    REQUIRE(pages.run_until([&] { return pages.server->connection_count() == 1; }));
    char first = 0;
    CHECK(pages.run_until(
        [&] { return ::recv(guest.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0; }));
    int before = pages.source.begun;
    CHECK(pages.run_until([&] { return pages.source.begun > before; }));
  }

  TEST_CASE("who needs longer to read a page than for a handshake gets all of it") {
    Pages pages({.handshake_timeout = 50ms});
    pages.source.pieces = 2;              // a beginning, and this
    pages.source.piece_bytes = 12 << 20;  // more than the system's buffers take
    RawClient browser = pages.asks_for("/status");
    REQUIRE(pages.run_until([&] { return pages.has_answer(browser); }));
    RawClient silent(pages.server->port());
    REQUIRE(pages.run_until([&] { return pages.server->connection_count() == 2; }));
    REQUIRE(pages.run_until([&] { return pages.server->connection_count() == 1; }));
    std::size_t size = 0;
    bool is_over = false;
    REQUIRE(pages.run_until([&] {
      static char piece[1 << 20];
      ssize_t count = ::recv(browser.fd(), piece, sizeof piece, MSG_DONTWAIT);
      if (count > 0) size += static_cast<std::size_t>(count);
      is_over = is_over || count == 0;
      return is_over;
    }));
    CHECK(size > pages.source.piece_bytes);
  }

  TEST_CASE("who follows and reads nothing is closed, and those who read are not") {
    Pages pages({.unread_timeout = 100ms});
    pages.source.pieces = 64;
    pages.source.piece_bytes = 256 * 1024;
    RawClient deaf = pages.asks_for("/events");
    REQUIRE(pages.run_until([&] { return pages.source.begun == 1; }));
    RawClient browser = pages.asks_for("/healthz");
    CHECK(pages.run_until([&] { return Pages::has_answer(browser); }));
    CHECK(pages.run_until([&] { return pages.server->connection_count() == 0; }));
    int begun = pages.source.begun;
    RawClient follower = pages.asks_for("/events");
    std::size_t read = 0;
    char bytes[65536];
    CHECK(pages.run_until([&] {
      ssize_t count = ::recv(follower.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (count > 0) read += static_cast<std::size_t>(count);
      // The next one may begin while the system still holds the end of this one.
      return pages.source.begun > begun + 1 && read > 63 * pages.source.piece_bytes;
    }));
    CHECK(pages.server->connection_count() == 1);
  }

  TEST_CASE("events that are not read hold no more than all replies may") {
    Pages pages({.max_reply_bytes = 8 << 20});
    pages.source.pieces = 64;
    pages.source.piece_bytes = 256 * 1024;
    RawClient deaf = pages.asks_for("/events");
    CHECK(pages.run_until([&] { return pages.source.begun == 1; }));
    CHECK(pages.run_until([&] { return pages.server->connection_count() == 0; }));
  }
}
