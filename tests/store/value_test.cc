// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/value.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using namespace ddprun::store;

TEST_SUITE("store/decide/value") {
  TEST_CASE("a value is framed by its length, and so is none") {
    using std::string_literals::operator""s;
    CHECK(Value("ab").framed() == "\2\0\0\0\0\0\0\0ab"s);
    CHECK(Value("").framed() == "\0\0\0\0\0\0\0\0"s);
    CHECK(Value().framed() == "\0\0\0\0\0\0\0\0"s);
  }

  TEST_CASE("assign() writes over the old bytes only where nobody shares them") {
    Value value("old and long");
    const char* place = value.view().data();
    value.assign("new");
    CHECK(value.view() == "new");
    CHECK(value.view().data() == place);
    CHECK(value.framed().size() == 8 + 3);

    Value shared = value;
    value.assign("two");
    CHECK(value.view() == "two");
    CHECK(shared.view() == "new");
  }

  TEST_CASE("assign() makes a value where there is none, and an empty value is one") {
    Value value;
    value.assign("");
    CHECK(bool(value));
    CHECK(value.size() == 0);
  }

  TEST_CASE("assign() does not keep much more memory than it needs") {
    Value value(std::string(1 << 20, 'v'));
    const char* place = value.view().data();
    value.assign("x");
    CHECK(value.view() == "x");
    CHECK(value.view().data() != place);
  }

  TEST_CASE("append() after assign() keeps what was assigned") {
    Value value("a long enough beginning");
    value.assign("be");
    value.append("gin");
    CHECK(value.view() == "begin");
    CHECK(value.framed().size() == 8 + 5);
  }

  TEST_CASE("touch_room() changes no value, and appends take its room as before") {
    Value().touch_room(0, 10);
    Value value = Value::with_room(20'000);
    value.append("begin");
    const char* place = value.view().data();
    value.touch_room(0, 4096);
    value.touch_room(4096, 1 << 20);
    value.touch_room(1 << 20, 4096);
    CHECK(value.view() == "begin");
    value.append(std::string(10'000, 'x'));
    CHECK(value.view() == "begin" + std::string(10'000, 'x'));
    CHECK(value.view().data() == place);
    Value shared = value;
    value.touch_room(0, 4096);
    CHECK(shared.view() == value.view());
  }

  TEST_CASE("what only replies hold is counted once, whoever lets go of it last") {
    const std::size_t before = SentValue::all_unstored_bytes();
    auto counted = [before] { return SentValue::all_unstored_bytes() - before; };
    Value stored(std::string(10'000, 'v'));
    SentValue first(stored), second(stored);
    CHECK(counted() == 0);
    CHECK(first.unstored_bytes() == 0);

    stored.assign("another");
    CHECK(counted() >= 10'000);
    CHECK(counted() < 11'000);
    CHECK(first.unstored_bytes() == counted() / 2);
    {
      SentValue third = second;
      CHECK(third.unstored_bytes() == counted() / 3);
      CHECK(counted() < 11'000);
    }
    second = SentValue();
    CHECK(first.unstored_bytes() == counted());
    SentValue moved = std::move(first);
    CHECK(counted() >= 10'000);
    moved = SentValue();
    CHECK(counted() == 0);

    SentValue never_stored{Value("echo")};
    CHECK(counted() >= 4);
    never_stored = SentValue(stored);
    CHECK(counted() == 0);
    CHECK(never_stored.view() == "another");
  }
}
