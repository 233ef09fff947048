// SPDX-License-Identifier: BSD-3-Clause
//
// Requests about very many names, which are carried out in steps while others are served.  Here two
// names are many.  tests/store/keyspace_model_test.cc plays them at random.
#include <doctest/doctest.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "store/decide/keyspace.h"
#include "tests/support/reply_text.h"

using namespace ddprun::store;
using namespace std::string_view_literals;

namespace {

constexpr ClientId kLarge = 1;  // whose request is large
constexpr ClientId kOther = 2;

struct Clients {
  Keyspace keyspace;
  ddprun::MonoTime now{};

  explicit Clients(KeyspaceLimits limits = {}) : keyspace(with_few_at_once(limits)) {}

  static KeyspaceLimits with_few_at_once(KeyspaceLimits limits) {
    limits.names_at_once = 1;
    return limits;
  }

  static std::string in_words(const Replies& replies) {
    std::string text;
    for (const Outgoing& outgoing : replies) {
      if (!text.empty()) text += ", ";
      if (outgoing.to != kLarge) text += std::to_string(outgoing.to) + ": ";
      text += ddprun::test::in_words(outgoing.reply);
    }
    return text;
  }

  std::string ask(ClientId client, const Request& request) {
    Replies replies;
    auto fault = keyspace.execute(client, request, now, replies);
    return in_words(replies) + (fault ? "closed: " + *fault : "");
  }

  void set(std::initializer_list<std::string_view> keys) {
    for (std::string_view key : keys) ask(kOther, request::Set{key, "old"});
  }

  std::string begin(const Request& request) {
    REQUIRE(keyspace.is_large(request));
    Replies replies;
    auto fault = keyspace.begin(kLarge, request, now, replies);
    return in_words(replies) + (fault ? "closed: " + *fault : "");
  }

  std::string proceed(std::size_t effort) {
    Replies replies;
    Keyspace::Progress progress = keyspace.proceed(effort, now, replies);
    std::string text = in_words(replies) + (progress.fault ? "closed: " + *progress.fault : "");
    return progress.is_done ? text : text + " ...";
  }

  std::string clean_up(std::size_t effort) {
    Replies replies;
    keyspace.clean_up(effort, now, replies);
    return in_words(replies);
  }

  std::string leave(ClientId client) {
    Replies replies;
    keyspace.disconnect(client, now, replies);
    return in_words(replies);
  }
};

constexpr std::array kNames{"a"sv, "b"sv, "c"sv};
constexpr std::array kMoreNames{"x"sv, "y"sv};
constexpr std::array kPairs{KeyValue{"a", "1"}, KeyValue{"b", "2"}};

}  // namespace

TEST_SUITE("store/keyspace/large") {
  TEST_CASE_FIXTURE(Clients, "what is about few names is not large") {
    CHECK_FALSE(keyspace.is_large(request::Wait{std::array{"a"sv}}));
    CHECK_FALSE(keyspace.is_large(request::Get{"a"}));
    CHECK_FALSE(Keyspace().is_large(request::Check{kNames}));
    CHECK(keyspace.is_large(request::MultiSet{std::array{KeyValue{"a", std::string(5000, 'x')}}}));
  }

  TEST_CASE_FIXTURE(Clients, "a check answers what was true when it began") {
    set({"a", "b", "c"});
    begin(request::Check{kNames});
    CHECK(proceed(1) == " ...");
    ask(kOther, request::DeleteKey{"c"});
    CHECK(proceed(9) == "byte 0");

    begin(request::Check{kNames});
    set({"c"});
    CHECK(proceed(9) == "byte 1");
  }

  TEST_CASE_FIXTURE(Clients, "a multi_get answers with what there was when it began") {
    set({"a", "b"});
    begin(request::MultiGet{kNames});
    CHECK(proceed(1) == "'old' ...");
    ask(kOther, request::Set{"b", "new"});
    ask(kOther, request::Append{"b", "er"});
    ask(kOther, request::Set{"c", "new"});
    CHECK(proceed(1) == "'old' ...");
    CHECK(proceed(1) == "''");
    CHECK(keyspace.peek("b").view() == "newer");
  }

  TEST_CASE_FIXTURE(Clients, "list_keys lists what there was when it began, and each key once") {
    set({"a", "b", "c"});
    for (int i = 0; i < 2000; ++i) set({std::to_string(i)});  // more than are listed in one go
    CHECK(begin(request::ListKeys{}) == "2003");
    std::string listed = proceed(2);
    CHECK(listed.ends_with("..."));
    ask(kOther, request::DeleteKey{"a"});
    ask(kOther, request::Set{"b", "new"});
    for (int i = 0; i < 2000; ++i) set({"d" + std::to_string(i)});
    for (std::string more = "..."; more.ends_with("..."); listed += more) more = proceed(2);
    for (std::string_view key : kNames) {
      std::string quoted = "'" + std::string(key) + "'";
      CHECK(listed.find(quoted) != std::string::npos);
      CHECK(listed.find(quoted) == listed.rfind(quoted));
    }
    CHECK(listed.find('d') == std::string::npos);
  }

  TEST_CASE_FIXTURE(Clients, "a wait takes notice of what comes before it has seen all its names") {
    begin(request::Wait{kNames});
    CHECK(proceed(1) == " ...");
    set({"a", "b"});
    CHECK(proceed(9) == "");
    CHECK(keyspace.wait_count() == 1);
    CHECK(ask(kOther, request::Set{"c", "v"}) == "byte 0");

    begin(request::Wait{kMoreNames});
    CHECK(proceed(1) == " ...");
    set({"x", "y"});
    CHECK(proceed(9) == "byte 0");
    CHECK(keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "nothing gets in between the pieces of a large answer") {
    set({"a", "b"});
    ask(kLarge, request::Wait{std::array{"flag"sv}});
    begin(request::MultiGet{kNames});
    CHECK(proceed(1) == "'old' ...");
    CHECK(ask(kOther, request::Set{"flag", "v"}) == "");
    CHECK(proceed(9) == "'old', '', byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "a multi_set sets pair by pair, and wakes who waits") {
    ask(kOther, request::Wait{std::array{"b"sv}});
    begin(request::MultiSet{kPairs});
    CHECK(proceed(1) == " ...");
    CHECK(keyspace.peek("a").view() == "1");
    CHECK_FALSE(keyspace.peek("b"));
    CHECK(proceed(1) == "2: byte 0");
    CHECK(keyspace.peek("b").view() == "2");
  }

  TEST_CASE("room for a multi_set is there for it until it is done, and not a byte longer") {
    Clients clients({.max_keys = 3});
    clients.begin(request::MultiSet{kPairs});
    CHECK(clients.proceed(1) == " ...");
    CHECK(clients.ask(kOther, request::Set{"c", "v"}) == "");
    CHECK(clients.ask(kOther, request::Set{"d", "v"}) == "closed: no room for SET of 'd'");
    CHECK(clients.proceed(9) == "");
    clients.ask(kOther, request::DeleteKey{"a"});
    CHECK(clients.ask(kOther, request::Set{"d", "v"}) == "");
    CHECK(clients.begin(request::MultiSet{std::array{KeyValue{"e", "1"}, KeyValue{"f", "2"}}}) ==
          "closed: no room for a MULTI_SET of 2 keys");
    CHECK(clients.keyspace.key_count() == 3);
  }

  TEST_CASE("a wait for more names than allowed closes its client and leaves nothing behind") {
    Clients clients({.max_awaited_keys = 2});
    clients.begin(request::Wait{kNames});
    CHECK(clients.proceed(9) == "closed: waits for more than 2 keys at once");
    CHECK(clients.leave(kLarge) == "");
    while (clients.keyspace.needs_cleanup()) clients.clean_up(1);
    CHECK(clients.keyspace.bytes() == 0);
    CHECK(clients.keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "names count with their length, and so do values") {
    const std::string name(2000, 'n');
    Keyspace some({.names_at_once = 100});
    std::vector<std::string_view> names(30, name);
    CHECK(some.is_large(request::Check{names}));
    CHECK(some.is_large(request::MultiGet{names}));
    CHECK_FALSE(some.is_large(request::Check{std::span(names).first(10)}));
    Replies replies;
    for (char c : "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"sv) {
      some.execute(kOther, request::Set{name + c, "v"}, now, replies);
      if (c == 'z') CHECK_FALSE(some.is_large(request::ListKeys{}));
    }
    CHECK(some.is_large(request::ListKeys{}));
    CHECK(some.effort_of(request::Set{"k", std::string(1 << 20, 'v')}) == 1 + 1024);
    CHECK(some.effort_of(request::CompareSet{"k", name, name}) == 1 + 1 + 1);
    CHECK(some.effort_of(request::Get{"k"}) == 1);
  }

  TEST_CASE_FIXTURE(Clients, "a large value that is deleted or replaced costs as much as it has") {
    const std::string large(1 << 20, 'v');
    CHECK(keyspace.effort_of(request::DeleteKey{"k"}) == 1);
    ask(kOther, request::Set{"k", large});
    CHECK(keyspace.effort_of(request::DeleteKey{"k"}) == 1 + 1024);
    CHECK(keyspace.effort_of(request::DeleteKey{"other"}) == 1);
    CHECK(keyspace.effort_of(request::Set{"k", "v"}) == 1 + 1024);
    CHECK(keyspace.effort_of(request::MultiSet{std::array{KeyValue{"k", "v"}}}) == 1 + 1024);
    ask(kOther, request::Append{"k", "v"});
    ask(kOther, request::Set{"k", "v"});
    CHECK(keyspace.effort_of(request::DeleteKey{"k"}) == 1);
    ask(kOther, request::Append{"k", large});
    CHECK(keyspace.effort_of(request::DeleteKey{"k"}) == 1 + 1024);
  }

  TEST_CASE_FIXTURE(Clients, "large values are replaced in steps") {
    Keyspace some({.names_at_once = 2000});
    Replies replies;
    const std::string large(1 << 20, 'v');
    const std::array pairs{KeyValue{"a", "1"}, KeyValue{"b", "2"}, KeyValue{"c", "3"}};
    for (const KeyValue& pair : pairs)
      some.execute(kOther, request::Set{pair.key, large}, now, replies);
    request::MultiSet request{pairs};
    REQUIRE(some.is_large(request));
    REQUIRE_FALSE(some.begin(kLarge, request, now, replies));
    CHECK_FALSE(some.proceed(1024, now, replies).is_done);
    CHECK(some.peek("a").view() == "1");
    CHECK(some.peek("b").view() == large);
    while (!some.proceed(1024, now, replies).is_done) continue;
    CHECK(some.peek("c").view() == "3");
  }

  TEST_CASE_FIXTURE(Clients, "to append to a value that is being read is large, if that is") {
    const std::string old(600'000, 'v');
    ask(kOther, request::Set{"k", old});
    CHECK(keyspace.is_large(request::Append{"k", "x"}));  // there is no room in its place
    ask(kOther, request::Append{"k", "x"});
    CHECK_FALSE(keyspace.is_large(request::Append{"k", "x"}));
    Replies reading;
    keyspace.execute(kOther, request::Get{"k"}, now, reading);
    CHECK(keyspace.is_large(request::Append{"k", "y"}));
    ask(kOther, request::Wait{std::array{"other"sv}});
    begin(request::Append{"k", "y"});
    CHECK(proceed(1) == " ...");
    CHECK(keyspace.peek("k").view() == old + "x");
    CHECK(proceed(1) == " ...");
    CHECK(proceed(1) == "");
    CHECK(keyspace.peek("k").view() == old + "xy");
    CHECK(std::get<reply::Bytes>(reading[0].reply).value.view() == old + "x");
    CHECK(keyspace.bytes() ==
          2 * cost::kName + cost::kValue + 1 + 600'002 + cost::kWait + cost::kAwaitedName + 5);
  }

  TEST_CASE_FIXTURE(Clients, "a long piece is appended without a copy where there is room for it") {
    const std::string old(6'000'000, 'v');
    const std::string piece(2'000'000, 'w');
    ask(kOther, request::Set{"k", old});
    ask(kOther, request::Append{"k", "x"});  // takes room for half as much again
    const char* place = keyspace.peek("k").view().data();
    begin(request::Append{"k", piece});
    int steps = 1;
    for (; proceed(1) == " ..."; ++steps) {
      CHECK(keyspace.peek("k").size() == old.size() + 1 + (steps > 3 ? 1 : 0));
      if (steps == 3) ask(kOther, request::Append{"k", "y"});
    }
    CHECK(steps == 7);  // of 256 KiB each; the last appends it as well
    CHECK(keyspace.peek("k").view() == old + "xy" + piece);
    CHECK(keyspace.peek("k").view().data() == place);
    ask(kOther, request::DeleteKey{"k"});
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "what others store while a long value is copied is appended to") {
    const std::string old(600'000, 'v');
    for (bool is_deleted : {false, true}) {
      CAPTURE(is_deleted);
      ask(kOther, request::Set{"k", old});
      begin(request::Append{"k", "x"});
      CHECK(proceed(1) == " ...");
      if (is_deleted) {
        ask(kOther, request::DeleteKey{"k"});
      } else {
        ask(kOther, request::Set{"k", "new"});
      }
      CHECK(proceed(9) == "");
      CHECK(keyspace.peek("k").view() == (is_deleted ? "x" : "newx"));
      ask(kOther, request::DeleteKey{"k"});
      CHECK(keyspace.bytes() == 0);
    }
  }

  TEST_CASE("a value does not grow beyond the room there is while it is copied") {
    Clients clients({.max_bytes = 1'000'000});
    clients.ask(kOther, request::Set{"k", std::string(600'000, 'v')});
    clients.begin(request::Append{"k", "x"});
    CHECK(clients.proceed(1) == " ...");
    CHECK(clients.ask(kOther, request::Set{"l", std::string(399'662, 'v')}) == "");
    CHECK(clients.proceed(9) == "closed: no room for APPEND of 'k'");
    CHECK(clients.keyspace.peek("k").size() == 600'000);
  }

  TEST_CASE("of very many who wait for a key some are told at a time, who asks first") {
    Keyspace keyspace({.wakes_at_once = 3});
    Replies replies;
    auto ask = [&](ClientId client, const Request& request) {
      replies.clear();
      CHECK_FALSE(keyspace.execute(client, request, {}, replies));
      return Clients::in_words(replies);
    };
    auto clean_up = [&](std::size_t effort) {
      replies.clear();
      keyspace.clean_up(effort, {}, replies);
      return Clients::in_words(replies);
    };
    for (ClientId client = 10; client < 20; ++client) {
      CHECK(ask(client, request::Wait{std::array{"k"sv}}) == "");
    }
    CHECK(ask(20, request::QueueTake{"k", 1000}) == "");
    CHECK(ask(15, request::Add{"k", 1}) == "15: byte 0, 15: 1");
    CHECK(clean_up(2) == "10: byte 0, 11: byte 0");
    CHECK(ask(12, request::CancelWait{}) == "12: byte 1");
    keyspace.disconnect(13, {}, replies);
    // Those who waited when there was a key are told of it, whatever becomes of it, and no others.
    CHECK(ask(30, request::DeleteKey{"k"}) == "30: 1");
    CHECK(ask(31, request::Wait{std::array{"k"sv}}) == "");
    CHECK(clean_up(5) == "14: byte 0, 16: byte 0");
    CHECK(clean_up(9) == "17: byte 0, 18: byte 0, 19: byte 0");
    CHECK_FALSE(keyspace.needs_cleanup());
    CHECK(ask(32, request::QueuePush{"k", "item"}) == "20: 1, 20: 'item'");
    CHECK(keyspace.wait_count() == 1);
    CHECK(ask(32, request::Set{"k", "v"}) == "31: byte 0");
    ask(32, request::DeleteKey{"k"});
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE("to close the gaps that leaving clients leave is work that is done in steps as well") {
    constexpr std::size_t kClients = 600;
    constexpr std::size_t kNamesEach = 70;
    Keyspace keyspace;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kNamesEach; ++i) names.push_back("name" + std::to_string(i));
    const std::vector<std::string_view> views(names.begin(), names.end());
    Replies replies;
    for (ClientId client = 1; client <= kClients + 1; ++client) {
      keyspace.execute(client, request::Wait{views}, {}, replies);
    }
    for (ClientId client = 1; client <= kClients; ++client) {
      keyspace.disconnect(client, {}, replies);
    }
    std::size_t steps = 0;
    for (; keyspace.needs_cleanup(); ++steps) keyspace.clean_up(kNamesEach, {}, replies);
    // Each link is looked at, and, while half of them leave again and again, the others move twice.
    CHECK(steps > kClients + kClients / 8);
    CHECK(steps < 2 * kClients);
    CHECK(keyspace.wait_count() == 1);
    CHECK(replies.empty());
  }

  TEST_CASE("those who are still to be told may all leave, and the key with them") {
    Keyspace keyspace({.wakes_at_once = 1});
    Replies replies;
    for (ClientId client = 1; client < 100; ++client) {
      keyspace.execute(client, request::Wait{std::array{"k"sv}}, {}, replies);
    }
    keyspace.execute(200, request::Set{"k", "v"}, {}, replies);
    keyspace.execute(200, request::DeleteKey{"k"}, {}, replies);
    replies.clear();
    keyspace.clean_up(7, {}, replies);
    CHECK(replies.size() == 7);
    for (ClientId client = 99; client > 0; --client) keyspace.disconnect(client, {}, replies);
    CHECK(replies.size() == 7);
    CHECK_FALSE(keyspace.needs_cleanup());
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE("very many who wait for a queue are offered an item some at a time") {
    Keyspace keyspace({.wakes_at_once = 4});
    Replies replies;
    for (ClientId client = 1; client <= 10; ++client) {
      keyspace.execute(client, request::Wait{std::array{"q"sv, "r"sv}}, {}, replies);
    }
    keyspace.execute(11, request::QueueTake{"q", 1000}, {}, replies);
    keyspace.execute(12, request::QueuePush{"q", "item"}, {}, replies);
    CHECK(replies.empty());
    CHECK(keyspace.needs_cleanup());
    keyspace.clean_up(1, {}, replies);
    CHECK(replies.empty());
    keyspace.clean_up(1, {}, replies);
    CHECK(Clients::in_words(replies) == "11: 1, 11: 'item'");
    CHECK_FALSE(keyspace.needs_cleanup());
    replies.clear();
    keyspace.execute(12, request::Set{"r", "v"}, {}, replies);
    CHECK(replies.empty());
    while (keyspace.needs_cleanup()) keyspace.clean_up(4, {}, replies);
    CHECK(replies.size() == 10);
  }

  TEST_CASE("a name that is given many times is waited for once") {
    Keyspace keyspace;
    Replies replies;
    std::vector<std::string_view> names(3000, "k");
    keyspace.execute(1, request::Wait{names}, {}, replies);
    CHECK(keyspace.bytes() == 1 + cost::kName + cost::kWait + cost::kAwaitedName);
    CHECK(keyspace.pending(1, 9)[0].missing_count == 1);
    keyspace.execute(2, request::Set{"k", "v"}, {}, replies);
    CHECK(replies.size() == 1);
  }

  TEST_CASE("a client that leaves costs others no more than a few names, whatever it waits for") {
    Keyspace keyspace;
    Replies replies;
    std::vector<std::string> texts;
    for (int i = 0; i < 4000; ++i) texts.push_back("k" + std::to_string(i));
    std::vector<std::string_view> names(texts.begin(), texts.end());
    keyspace.execute(1, request::Wait{names}, {}, replies);
    for (int i = 0; i < 60; ++i) {
      keyspace.execute(2, request::Wait{std::span(names).subspan(std::size_t(i) * 60, 60)}, {},
                       replies);
    }
    for (ClientId client : {1, 2}) {
      std::size_t before = keyspace.bytes();
      std::size_t waits = keyspace.wait_count(client);
      keyspace.disconnect(client, {}, replies);
      CHECK(before - keyspace.bytes() <= waits * cost::kWait + 64 * cost::kAwaitedName);
      CHECK(keyspace.wait_count(client) == 0);
    }
    int steps = 0;
    for (; keyspace.needs_cleanup(); ++steps) keyspace.clean_up(100, {}, replies);
    CHECK(steps >= (4000 + 3600) / 100 - 1);
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "a long wait that is given up is let go of step by step") {
    begin(request::Wait{kNames});
    CHECK(proceed(9) == "");
    CHECK(ask(kLarge, request::CancelWait{}) == "byte 1");
    CHECK(keyspace.wait_count() == 0);
    CHECK(keyspace.is_unknown(kLarge));
    REQUIRE(keyspace.needs_cleanup());
    clean_up(1);
    CHECK(ask(kOther, request::Set{"a", "v"}) == "");
    CHECK(ask(kOther, request::QueuePush{"b", "item"}) == "");
    clean_up(9);
    CHECK_FALSE(keyspace.needs_cleanup());
    CHECK(ask(kOther, request::QueuePop{"b"}) == "2: 1, 2: 'item'");
    CHECK(ask(kOther, request::DeleteKey{"a"}) == "2: 1");
    CHECK(keyspace.bytes() == 0);
  }
}
