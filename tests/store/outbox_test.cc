// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/outbox.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

using namespace ddprun::store;

namespace {

// Takes everything out, `step` bytes at a time.
std::string drain(Outbox& outbox, std::size_t step) {
  std::string sent;
  while (!outbox.empty()) {
    std::array<std::string_view, 2> views;
    std::size_t count = outbox.front(views);
    REQUIRE(count > 0);
    CHECK(count == std::min(views.size(), outbox.piece_count()));
    CHECK(outbox.front() == views[0]);
    std::string next;
    for (std::size_t i = 0; i < count; ++i) next += views[i];
    next.resize(std::min(step, next.size()));
    sent += next;
    outbox.consume(next.size());
  }
  return sent;
}

}  // namespace

TEST_SUITE("store/decide/outbox") {
  TEST_CASE("what goes in comes out, in order, however little is sent at a time") {
    std::string large(100'000, 'x');
    for (std::size_t step : {1u, 7u, 4096u, 1'000'000u}) {
      Outbox outbox;
      std::string expected;
      for (int i = 0; i < 3; ++i) {
        for (const Reply& reply :
             {Reply(reply::Byte{1}), Reply(reply::Bytes{Value("small")}),
              Reply(reply::Bytes{Value(large)}), Reply(reply::Bytes{}), Reply(reply::Number{-1}),
              Reply(reply::Run{"a few"}), Reply(reply::Run{large})}) {
          outbox.add(reply);
          encode(reply, expected);
        }
      }
      CHECK(outbox.size() == expected.size());
      bool is_equal = drain(outbox, step) == expected;
      CHECK(is_equal);
      CHECK(outbox.size() == 0);
    }
  }

  TEST_CASE("many small replies are not one growing run of bytes") {
    Outbox outbox;
    Value value(std::string(1000, 'v'));
    for (int i = 0; i < 1000; ++i) outbox.add(reply::Bytes{value});
    std::array<std::string_view, 64> views;
    std::size_t count = outbox.front(views);
    CHECK(count > 10);
    CHECK(views[0].size() < Outbox::kRunBytes + 2000);
  }

  TEST_CASE("a large value is sent from where it is stored") {
    Outbox outbox;
    Value value(std::string(100'000, 'v'));
    outbox.add(reply::Bytes{value});
    REQUIRE(outbox.piece_count() == 1);
    CHECK(outbox.front().data() == value.framed().data());
    CHECK(outbox.front().size() == 8 + value.size());
  }

  TEST_CASE("what is held is counted: copies, pieces, and values that are not stored any more") {
    Outbox outbox;
    outbox.add(reply::Run{std::string(50'000, 'r')});
    CHECK(outbox.held_bytes() >= 50'000);
    outbox.consume(outbox.size());
    CHECK(outbox.held_bytes() == 0);

    Value value(std::string(2000, 'v'));
    for (int i = 0; i < 1000; ++i) outbox.add(reply::Bytes{value});
    CHECK(outbox.held_bytes() >= 1000 * sizeof(Value));
    CHECK(outbox.held_bytes() < 1000 * 100);
    CHECK(outbox.unstored_bytes() == 0);
    value = Value();
    CHECK(outbox.unstored_bytes() > 1000);
    CHECK(outbox.unstored_bytes() <= 2100);
    outbox.consume(outbox.size());
    CHECK(outbox.held_bytes() + outbox.unstored_bytes() == 0);
  }
}
