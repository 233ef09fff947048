// SPDX-License-Identifier: BSD-3-Clause
//
// What a server does with the memory of very large values that are gone.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "store/decide/unfreed_memory.h"
#include "store/server.h"
#include "tests/support/raw_client.h"

using namespace ddprun::store;
using namespace std::chrono_literals;
using namespace std::string_view_literals;
using ddprun::test::RawClient;

namespace {

constexpr std::size_t kLarge = std::size_t{40} << 20;

// A server in the test's own thread, one handler at a time, and a client in another.
struct Watched {
  boost::asio::io_context context{1};
  std::unique_ptr<Server> server;
  std::size_t most_unfreed = 0;
  std::size_t most_bytes = 0;  // of what is stored and what is not freed yet
  std::size_t most_at_once = 0;
  int steps = 0;

  explicit Watched(std::size_t max_bytes = std::size_t{1} << 30) {
    ServerConfig config;
    config.listen = {.host = "127.0.0.1", .port = 0};
    config.wire.max_value_bytes = kLarge;
    config.keyspace.max_bytes = max_bytes;
    server = Server::listen(context.get_executor(), std::move(config)).value();
  }

  void run_one() {
    std::size_t before = server->unfreed_bytes();
    context.run_one_for(100ms);
    std::size_t unfreed = server->unfreed_bytes();
    most_unfreed = std::max(most_unfreed, unfreed);
    most_bytes = std::max(most_bytes, unfreed + server->namespaces().usage().bytes);
    if (unfreed >= before) return;
    most_at_once = std::max(most_at_once, before - unfreed);
    ++steps;
  }

  // Until the client is done and nothing is left to be freed.
  void serve(const std::function<void(RawClient&)>& talk) {
    std::atomic<bool> is_over = false;
    std::thread thread([&, port = server->port()] {
      RawClient client(port);
      client.shake_hands();
      talk(client);
      is_over = true;
    });
    auto deadline = std::chrono::steady_clock::now() + 60s;
    while ((!is_over || server->namespaces().former_bytes() > 0 || server->unfreed_bytes() > 0) &&
           std::chrono::steady_clock::now() < deadline) {
      run_one();
    }
    thread.join();
  }

  void check_steps() const {
    CHECK(most_unfreed >= kLarge);
    CHECK(server->unfreed_bytes() == 0);
    CHECK(steps >= static_cast<int>(kLarge / UnfreedMemory::kPieceBytes));
    CHECK(most_at_once <= UnfreedMemory::kPieceBytes);
  }
};

void store_large(RawClient& client) {
  client.send(request::Set{"k", std::string(kLarge, 'v')}).send(request::Ping{1}).receive(4);
}

}  // namespace

TEST_SUITE("store/server_memory") {
  TEST_CASE("a very large value that is deleted is freed in steps") {
    Watched watched;
    std::int64_t count = 0;
    watched.serve([&](RawClient& client) {
      store_large(client);
      count = client.send(request::DeleteKey{"k"}).receive_number();
    });
    CHECK(count == 1);
    watched.check_steps();
  }

  TEST_CASE("a very large value that is replaced is freed in steps") {
    Watched watched;
    std::string value;
    watched.serve([&](RawClient& client) {
      store_large(client);
      value = client.send(request::Set{"k", "new"}).send(request::Get{"k"}).receive_bytes();
    });
    CHECK(value == "new");
    watched.check_steps();
  }

  TEST_CASE("a very large value that is outgrown is freed in steps") {
    Watched watched;
    std::string pong;
    watched.serve([&](RawClient& client) {
      store_large(client);
      pong = client.send(request::Append{"k", "x"}).send(request::Ping{1}).receive(4);
    });
    CHECK(pong == "\1\0\0\0"sv);
    CHECK(watched.server->keyspace().peek("k").size() == kLarge + 1);
    watched.check_steps();
  }

  TEST_CASE("a very large value of a round that is over is freed in steps") {
    Watched watched;
    watched.serve(store_large);
    CHECK(watched.most_unfreed == 0);
    watched.server->renew_common_namespace();
    watched.serve([](RawClient&) {});
    watched.check_steps();
  }

  TEST_CASE(
      "what is stored and what is not freed yet never exceed the limit, and nobody is closed") {
    constexpr std::size_t kLimit = kLarge + 10'000;
    Watched watched(kLimit);
    const std::string other(kLarge / 2, 'o');
    std::string bytes;
    encode(request::Set{"other", other}, bytes);
    RawClient first(watched.server->port());
    RawClient late(watched.server->port());  // all but a byte of its request is there
    watched.serve([&](RawClient&) {
      first.shake_hands();
      store_large(first);
      late.shake_hands();
      late.send(std::string_view(bytes).substr(0, bytes.size() - 1));
    });
    while (watched.context.run_one_for(100ms) > 0) continue;  // all of it has been read
    first.send(request::DeleteKey{"k"});
    for (int i = 0; i < 1000 && watched.server->keyspace().key_count() > 0; ++i) watched.run_one();
    late.send(std::string_view(bytes).substr(bytes.size() - 1));
    watched.serve(
        [&](RawClient&) { CHECK(late.send(request::Ping{1}).receive(4) == "\1\0\0\0"sv); });
    CHECK(watched.server->keyspace().peek("other").view() == other);
    CHECK(watched.most_bytes >= kLarge);
    CHECK(watched.most_bytes <= kLimit);
    watched.check_steps();
  }
}
