// SPDX-License-Identifier: BSD-3-Clause
//
// Requests about very many names, which are carried out in steps while others are served.  Here two
// names are many.  tests/store/keyspace_model_test.cc plays them at random.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <string_view>

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
    Progress progress = keyspace.proceed(effort, now, replies);
    std::string text = in_words(replies) + (progress.fault ? "closed: " + *progress.fault : "");
    return progress.is_done ? text : text + " ...";
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
    while (clients.keyspace.needs_cleanup()) clients.keyspace.clean_up(1);
    CHECK(clients.keyspace.bytes() == 0);
    CHECK(clients.keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "a long wait that is given up is let go of step by step") {
    begin(request::Wait{kNames});
    CHECK(proceed(9) == "");
    CHECK(ask(kLarge, request::CancelWait{}) == "byte 1");
    CHECK(keyspace.wait_count() == 0);
    CHECK(keyspace.is_unknown(kLarge));
    REQUIRE(keyspace.needs_cleanup());
    keyspace.clean_up(1);
    CHECK(ask(kOther, request::Set{"a", "v"}) == "");
    CHECK(ask(kOther, request::QueuePush{"b", "item"}) == "");
    keyspace.clean_up(9);
    CHECK_FALSE(keyspace.needs_cleanup());
    CHECK(ask(kOther, request::QueuePop{"b"}) == "2: 1, 2: 'item'");
    CHECK(ask(kOther, request::DeleteKey{"a"}) == "2: 1");
    CHECK(keyspace.bytes() == 0);
  }
}
