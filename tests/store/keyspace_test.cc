// SPDX-License-Identifier: BSD-3-Clause
//
// What each operation means.  Where a case restates torch's behaviour it says so; the faults of
// torch's own server that must not come back have "(torch ...)" in their names.
#include "store/decide/keyspace.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/reply_text.h"

using namespace ddprun::store;
using namespace std::chrono_literals;
using namespace std::string_view_literals;

namespace {

using Keys = std::vector<std::string_view>;

// A keyspace and a few clients, known by number.
struct Clients {
  KeyspaceLimits limits{};
  Keyspace keyspace{limits};
  ddprun::MonoTime now{};

  explicit Clients(KeyspaceLimits l = {}) : limits(l) {}

  // What `client` is answered, as text; a piece for another client has its number in front.
  std::string ask(ClientId client, const Request& request) {
    Replies replies;
    auto fault = keyspace.execute(client, request, now, replies);
    return in_words(client, replies) + (fault ? "closed: " + *fault : "");
  }

  std::string leave(ClientId client) {
    Replies replies;
    keyspace.disconnect(client, now, replies);
    return in_words(client, replies);
  }

  std::string expire() {
    Replies replies;
    keyspace.expire(now, replies);
    return in_words(0, replies);
  }

  std::string wait(ClientId client, const Keys& keys) { return ask(client, request::Wait{keys}); }

  static std::string in_words(ClientId client, const Replies& replies) {
    std::string text;
    for (const Outgoing& outgoing : replies) {
      if (!text.empty()) text += ", ";
      if (outgoing.to != client) text += std::to_string(outgoing.to) + ": ";
      text += ddprun::test::in_words(outgoing.reply);
    }
    return text;
  }
};

}  // namespace

TEST_SUITE("store/decide/keyspace") {
  TEST_CASE_FIXTURE(Clients, "set and get; a missing key is an empty value") {
    CHECK(ask(1, request::Get{"k"}) == "''");
    CHECK(ask(1, request::Set{"k", "v"}) == "");
    CHECK(ask(2, request::Get{"k"}) == "'v'");
    ask(2, request::Set{"k", ""});
    CHECK(ask(1, request::Get{"k"}) == "''");
    CHECK(ask(1, request::Check{Keys{"k"}}) == "byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "an empty key is a key") {
    ask(1, request::Set{"", "v"});
    CHECK(ask(1, request::Get{""}) == "'v'");
    CHECK(ask(1, request::GetNumKeys{}) == "1");
  }

  TEST_CASE_FIXTURE(Clients, "add counts in decimal text, from zero") {
    CHECK(ask(1, request::Add{"k", 5}) == "5");
    CHECK(ask(2, request::Add{"k", -7}) == "-2");
    CHECK(ask(1, request::Get{"k"}) == "'-2'");
    CHECK(ask(1, request::Add{"created", 0}) == "0");
    CHECK(ask(1, request::Check{Keys{"created"}}) == "byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "add reads what is there as torch does: blanks, a sign, junk behind") {
    auto sum_over = [this](std::string_view text) {
      ask(1, request::Set{"k", text});
      return ask(1, request::Add{"k", 1});
    };
    CHECK(sum_over(" 41") == "42");
    CHECK(sum_over("\t\n+41") == "42");
    CHECK(sum_over("-1") == "0");
    CHECK(sum_over("41 and more") == "42");
    CHECK(sum_over("0041") == "42");
    CHECK(sum_over("") == "closed: ADD to 'k', which holds no number");
    CHECK(sum_over("none") == "closed: ADD to 'k', which holds no number");
    CHECK(sum_over("+-1") == "closed: ADD to 'k', which holds no number");
    CHECK(sum_over("+") == "closed: ADD to 'k', which holds no number");
    CHECK(sum_over("9223372036854775808") == "closed: ADD to 'k', which holds no number");
    CHECK(ask(1, request::Get{"k"}) == "'9223372036854775808'");
  }

  TEST_CASE_FIXTURE(Clients,
                    "an overflow closes the client and leaves the key (torch: undefined)") {
    ask(1, request::Set{"k", "9223372036854775807"});
    CHECK(ask(1, request::Add{"k", 1}) == "closed: ADD to 'k', which holds too large a number");
    CHECK(ask(1, request::Get{"k"}) == "'9223372036854775807'");
    CHECK(ask(1, request::Add{"k", -1}) == "9223372036854775806");
  }

  TEST_CASE_FIXTURE(Clients, "compare_set, all cases") {
    CHECK(ask(1, request::CompareSet{"k", "no", "v"}) == "'no'");  // echoed; nothing is stored
    CHECK(ask(1, request::GetNumKeys{}) == "0");
    CHECK(ask(1, request::CompareSet{"k", "", "v"}) == "'v'");
    CHECK(ask(1, request::CompareSet{"k", "v", "w"}) == "'w'");
    CHECK(ask(1, request::CompareSet{"k", "v", "x"}) == "'w'");
    CHECK(ask(1, request::CompareSet{"k", "", "x"}) == "'w'");
    CHECK(ask(1, request::CompareSet{"k", "w", ""}) == "''");
    CHECK(ask(1, request::CompareSet{"k", "", "x"}) == "'x'");
    CHECK(ask(1, request::Get{"k"}) == "'x'");
  }

  TEST_CASE_FIXTURE(
      Clients, "compare_set wakes only when it stores (torch frees waiters of a missing key)") {
    wait(2, {"k"});
    CHECK(ask(1, request::CompareSet{"k", "no", "v"}) == "'no'");
    CHECK(keyspace.wait_count() == 1);
    CHECK(ask(1, request::CompareSet{"k", "", "v"}) == "2: byte 0, 'v'");
  }

  TEST_CASE_FIXTURE(Clients, "check is ready when all exist; no key at all is all") {
    ask(1, request::Set{"a", "1"});
    CHECK(ask(1, request::Check{Keys{"a"}}) == "byte 0");
    CHECK(ask(1, request::Check{Keys{"a", "b"}}) == "byte 1");
    CHECK(ask(1, request::Check{Keys{}}) == "byte 0");
    ask(1, request::QueuePush{"b", "x"});
    CHECK(ask(1, request::Check{Keys{"a", "b"}}) == "byte 0");
    ask(1, request::QueuePop{"b"});
    CHECK(ask(1, request::Check{Keys{"a", "b"}}) == "byte 1");
  }

  TEST_CASE_FIXTURE(Clients, "a wait is answered at once, or when the last missing key comes") {
    ask(1, request::Set{"a", "1"});
    CHECK(wait(1, {}) == "byte 0");
    CHECK(wait(1, {"a"}) == "byte 0");
    CHECK(wait(1, {"a", "b", "c"}) == "");
    CHECK(ask(2, request::Set{"b", "1"}) == "");
    CHECK(ask(2, request::Add{"c", 1}) == "1: byte 0, 1");
    CHECK(keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "every way of making a key wakes its waiters") {
    wait(1, {"set"});
    CHECK(ask(9, request::Set{"set", ""}) == "1: byte 0");
    wait(1, {"append"});
    CHECK(ask(9, request::Append{"append", "x"}) == "1: byte 0");
    wait(1, {"multi"});
    CHECK(ask(9, request::MultiSet{std::array{KeyValue{"multi", "x"}}}) == "1: byte 0");
    wait(1, {"add"});
    CHECK(ask(9, request::Add{"add", 0}) == "1: byte 0, 0");
  }

  TEST_CASE_FIXTURE(Clients, "all who wait for a key are woken, first come first") {
    for (ClientId client = 1; client <= 3; ++client) wait(client, {"k"});
    CHECK(ask(9, request::Set{"k", "v"}) == "1: byte 0, 2: byte 0, 3: byte 0");
    CHECK(ask(9, request::Set{"k", "w"}) == "");
  }

  TEST_CASE_FIXTURE(Clients,
                    "a wait ticks each key off once: it survives deletes, and takes doubles") {
    wait(1, {"a", "b"});
    ask(2, request::Set{"a", "1"});
    ask(2, request::DeleteKey{"a"});
    CHECK(ask(2, request::Set{"b", "1"}) == "1: byte 0");
    CHECK(wait(1, {"c", "c"}) == "");
    CHECK(ask(2, request::Set{"c", "1"}) == "1: byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "cancel_wait always answers 1, and nothing comes after it") {
    CHECK(ask(1, request::CancelWait{}) == "byte 1");
    wait(1, {"k", "l"});
    CHECK(ask(1, request::CancelWait{}) == "byte 1");
    CHECK(ask(2, request::Set{"k", "v"}) == "");
    CHECK(ask(2, request::Set{"l", "v"}) == "");
    CHECK(ask(2, request::DeleteKey{"k"}) == "1");
    CHECK(ask(2, request::DeleteKey{"l"}) == "1");
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients,
                    "requests behind an outstanding wait are answered, a second wait too") {
    wait(1, {"a"});
    CHECK(ask(1, request::Ping{7}) == "nonce 7");
    CHECK(wait(1, {"b"}) == "");
    CHECK(ask(2, request::Set{"b", "1"}) == "1: byte 0");
    CHECK(ask(2, request::Set{"a", "1"}) == "1: byte 0");
    wait(1, {"c"});
    CHECK(ask(1, request::Add{"c", 1}) == "byte 0, 1");  // in this order, as from torch
  }

  TEST_CASE_FIXTURE(Clients, "a second wait leaves the first its count (torch replaces it)") {
    wait(1, {"a", "b"});
    wait(1, {"c"});
    CHECK(ask(2, request::Set{"a", "1"}) == "");
    CHECK(ask(2, request::Set{"b", "1"}) == "1: byte 0");
    CHECK(ask(2, request::Set{"c", "1"}) == "1: byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "one who leaves waits no more and leaves nothing behind") {
    wait(1, {"a", "b"});
    CHECK(leave(1) == "");
    CHECK(ask(2, request::Set{"a", "1"}) == "");
    CHECK(ask(2, request::DeleteKey{"a"}) == "1");
    CHECK(keyspace.bytes() == 0);
    CHECK(keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients,
                    "num_keys counts keys and not queues; delete removes keys and not queues") {
    ask(1, request::Set{"k", "v"});
    ask(1, request::QueuePush{"k", "x"});
    ask(1, request::QueuePush{"q", "x"});
    CHECK(ask(1, request::GetNumKeys{}) == "1");
    CHECK(ask(1, request::DeleteKey{"q"}) == "0");
    CHECK(ask(1, request::DeleteKey{"k"}) == "1");
    CHECK(ask(1, request::DeleteKey{"k"}) == "0");
    CHECK(ask(1, request::QueueLen{"k"}) == "1");
    CHECK(ask(1, request::GetNumKeys{}) == "0");
  }

  TEST_CASE_FIXTURE(Clients, "append creates or extends") {
    ask(1, request::Append{"k", "a"});
    ask(1, request::Append{"k", ""});
    ask(1, request::Append{"k", "bc"});
    CHECK(ask(1, request::Get{"k"}) == "'abc'");
  }

  TEST_CASE_FIXTURE(Clients, "a reply keeps the value it was given when the key is appended to") {
    ask(1, request::Set{"k", "a"});
    Replies replies;
    keyspace.execute(1, request::Get{"k"}, now, replies);
    ask(1, request::Append{"k", "b"});
    CHECK(ddprun::test::in_words(replies.at(0).reply) == "'a'");
  }

  TEST_CASE_FIXTURE(Clients, "multi_get answers in order, empty where a key is missing") {
    ask(1, request::MultiSet{std::array{KeyValue{"a", "1"}, KeyValue{"b", "2"}}});
    CHECK(ask(1, request::MultiGet{Keys{"b", "none", "a"}}) == "'2', '', '1'");
    CHECK(ask(1, request::MultiGet{Keys{}}) == "");
  }

  TEST_CASE_FIXTURE(Clients, "list_keys lists every key, init/ too, and no queue") {
    ask(1, request::Add{"init/", 1});
    ask(1, request::QueuePush{"q", "x"});
    wait(2, {"awaited"});
    CHECK(ask(1, request::ListKeys{}) == "1, 'init/'");
  }

  TEST_CASE_FIXTURE(Clients, "queues are first in, first out; a pop tells the length before it") {
    CHECK(ask(1, request::QueueLen{"q"}) == "0");
    CHECK(ask(1, request::QueuePop{"q"}) == "0");
    ask(1, request::QueuePush{"q", "a"});
    ask(1, request::QueuePush{"q", ""});
    CHECK(ask(1, request::QueueLen{"q"}) == "2");
    CHECK(ask(2, request::QueuePop{"q"}) == "2, 'a'");
    CHECK(ask(2, request::QueuePop{"q"}) == "1, ''");
    CHECK(ask(2, request::QueuePop{"q"}) == "0");
  }

  TEST_CASE_FIXTURE(
      Clients,
      "a pop or length of an unknown queue leaves nothing behind (torch leaks 907 bytes)") {
    ask(1, request::QueuePop{"unknown"});
    ask(1, request::QueueLen{"unknown"});
    CHECK(keyspace.bytes() == 0);
    ask(1, request::QueuePush{"q", "x"});
    ask(1, request::QueuePop{"q"});
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "a push wakes one waiter of the queue, first come first served") {
    wait(1, {"q"});
    wait(2, {"q"});
    CHECK(ask(9, request::QueuePush{"q", "a"}) == "1: byte 0");
    CHECK(ask(1, request::QueuePop{"q"}) == "1, 'a'");
    CHECK(ask(9, request::QueuePush{"q", "b"}) == "2: byte 0");
    CHECK(ask(2, request::QueuePop{"q"}) == "1, 'b'");
  }

  TEST_CASE_FIXTURE(Clients, "a key of the queue's name wakes all its waiters") {
    wait(1, {"q"});
    wait(2, {"q"});
    CHECK(ask(9, request::Set{"q", "v"}) == "1: byte 0, 2: byte 0");
  }

  TEST_CASE_FIXTURE(Clients,
                    "a push after an earlier pop releases the right wait (torch: the wrong one)") {
    wait(1, {"q"});
    ask(9, request::QueuePush{"q", "a"});
    ask(1, request::QueuePop{"q"});
    wait(1, {"other"});
    wait(2, {"q"});
    CHECK(ask(9, request::QueuePush{"q", "b"}) == "2: byte 0");
    CHECK(ask(9, request::Set{"other", "v"}) == "1: byte 0");
  }

  TEST_CASE_FIXTURE(Clients,
                    "a wait for a filled queue and a missing key ends with the key (torch hangs)") {
    ask(9, request::QueuePush{"q", "a"});
    CHECK(wait(1, {"q", "k"}) == "");
    CHECK(ask(9, request::Set{"k", "v"}) == "1: byte 0");
  }

  TEST_CASE_FIXTURE(
      Clients, "an item is set aside for the client told of it (torch: 'queue empty' raised)") {
    ask(9, request::QueuePush{"q", "a"});
    CHECK(wait(1, {"q"}) == "byte 0");
    CHECK(wait(2, {"q"}) == "");
    CHECK(ask(3, request::QueuePop{"q"}) == "0");
    CHECK(ask(1, request::QueuePop{"q"}) == "1, 'a'");
    CHECK(ask(9, request::QueuePush{"q", "b"}) == "2: byte 0");
    CHECK(ask(3, request::QueuePop{"q"}) == "0");
    CHECK(ask(2, request::QueuePop{"q"}) == "1, 'b'");
  }

  TEST_CASE_FIXTURE(Clients,
                    "what was set aside goes to the next when its holder asks for something else") {
    ask(9, request::QueuePush{"q", "a"});
    wait(1, {"q"});
    wait(2, {"q"});
    CHECK(ask(1, request::Ping{1}) == "2: byte 0, nonce 1");
    CHECK(ask(2, request::QueuePop{"q"}) == "1, 'a'");
  }

  TEST_CASE_FIXTURE(
      Clients, "what was set aside goes to the next when its holder cancels, dies or tarries") {
    for (int way = 0; way < 3; ++way) {
      CAPTURE(way);
      ask(9, request::QueuePush{"q", "a"});
      wait(1, {"q"});
      wait(2, {"q"});
      if (way == 0) CHECK(ask(1, request::CancelWait{}) == "2: byte 0, byte 1");
      if (way == 1) CHECK(leave(1) == "2: byte 0");
      if (way == 2) {
        now = *keyspace.deadline() - 1ns;
        CHECK(expire() == "");
        now += 1ns;
        CHECK(expire() == "2: byte 0");
      }
      CHECK(ask(2, request::QueuePop{"q"}) == "1, 'a'");
      CHECK_FALSE(keyspace.deadline());
    }
  }

  TEST_CASE_FIXTURE(Clients, "an item that its holder never pops can be popped after the hold") {
    ask(9, request::QueuePush{"q", "a"});
    wait(1, {"q"});
    CHECK(ask(2, request::QueuePop{"q"}) == "0");
    now = *keyspace.deadline();
    expire();
    CHECK(ask(2, request::QueuePop{"q"}) == "1, 'a'");
  }

  TEST_CASE_FIXTURE(Clients, "a probe tells which extensions there are") {
    CHECK(ask(1, request::Probe{}) == "nonce 31");
  }

  TEST_CASE_FIXTURE(Clients, "a take gets an item at once, or the next one pushed, in one answer") {
    ask(9, request::QueuePush{"q", "a"});
    CHECK(ask(1, request::QueueTake{"q", 1000}) == "1, 'a'");
    CHECK(ask(1, request::QueueTake{"q", 1000}) == "");
    CHECK(ask(2, request::QueueTake{"q", 1000}) == "");
    CHECK(ask(9, request::QueuePush{"q", "b"}) == "1: 1, 1: 'b'");
    CHECK(ask(9, request::QueuePush{"q", "c"}) == "2: 1, 2: 'c'");
    CHECK_FALSE(keyspace.deadline());
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients,
                    "a take whose time is up is answered 0; without a time it does not wait") {
    CHECK(ask(1, request::QueueTake{"q", 0}) == "0");
    CHECK(ask(1, request::QueueTake{"q", -1}) == "0");
    CHECK(ask(1, request::QueueTake{"q", 100}) == "");
    CHECK(ask(2, request::QueueTake{"q", 50}) == "");
    CHECK(keyspace.deadline() == now + 50ms);
    now += 50ms;
    CHECK(expire() == "2: 0");
    CHECK(keyspace.deadline() == now + 50ms);
    now += 50ms;
    CHECK(expire() == "1: 0");
    CHECK(keyspace.bytes() == 0);
    CHECK(keyspace.wait_count() == 0);
  }

  TEST_CASE_FIXTURE(Clients,
                    "a take and a blocking pop of torch's are served in turn; a key ends no take") {
    ask(1, request::QueueTake{"q", 1000});
    wait(2, {"q"});
    CHECK(ask(9, request::Set{"q", "v"}) == "2: byte 0");
    CHECK(ask(9, request::DeleteKey{"q"}) == "1");
    wait(2, {"q"});
    CHECK(ask(9, request::QueuePush{"q", "a"}) == "1: 1, 1: 'a'");
    CHECK(ask(1, request::QueueTake{"q", 1000}) == "");
    CHECK(ask(9, request::QueuePush{"q", "b"}) == "2: byte 0");  // set aside, so not for the take
    CHECK(ask(2, request::QueuePop{"q"}) == "1, 'b'");
    CHECK(leave(1) == "");
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "what was set aside may go to a take, and leaves nothing behind") {
    for (int way = 0; way < 2; ++way) {
      wait(1, {"q"});
      ask(9, request::QueuePush{"q", "a"});
      ask(2, request::QueueTake{"q", 60'000});
      if (way == 0) CHECK(leave(1) == "2: 1, 2: 'a'");
      if (way == 1) {
        now = *keyspace.deadline();
        CHECK(expire() == "2: 1, 2: 'a'");
      }
      CHECK(keyspace.bytes() == 0);
    }
  }

  TEST_CASE_FIXTURE(Clients,
                    "a last will goes to its queue when its client is lost, and wakes who waits") {
    CHECK(ask(1, request::LastWill{"inbox", "1 is lost"}) == "byte 0");
    CHECK(ask(2, request::QueueLen{"inbox"}) == "0");
    CHECK(ask(2, request::QueueTake{"inbox", 1000}) == "");
    CHECK(leave(1) == "2: 1, 2: '1 is lost'");
    CHECK(leave(1) == "");
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients,
                    "a later last will replaces an earlier one, and a cleared one is forgotten") {
    ask(1, request::LastWill{"q", "first"});
    ask(1, request::LastWill{"q", "second"});
    ask(2, request::LastWill{"q", "other"});
    CHECK(ask(2, request::ClearLastWill{}) == "byte 0");
    CHECK(ask(2, request::ClearLastWill{}) == "byte 0");
    leave(2);
    leave(1);
    CHECK(ask(3, request::QueuePop{"q"}) == "1, 'second'");
    CHECK(keyspace.bytes() == 0);
  }

  TEST_CASE_FIXTURE(Clients, "a barrier opens with its last member, and its key holds the count") {
    CHECK(ask(1, request::Barrier{"b", 3}) == "");
    CHECK(ask(2, request::Barrier{"b", 3}) == "");
    CHECK(ask(9, request::Get{"b"}) == "'2'");
    CHECK(ask(3, request::Barrier{"b", 3}) == "byte 0, 1: byte 0, 2: byte 0");
    CHECK(ask(4, request::Barrier{"b", 3}) == "byte 0");  // never reset, as in torch
  }

  TEST_CASE_FIXTURE(Clients, "a barrier of one or less opens at once") {
    CHECK(ask(1, request::Barrier{"one", 1}) == "byte 0");
    CHECK(ask(1, request::Barrier{"none", 0}) == "byte 0");
    CHECK(ask(1, request::Barrier{"less", -4}) == "byte 0");
  }

  TEST_CASE_FIXTURE(Clients,
                    "a barrier counts whoever came, even one who cancelled or left, as in torch") {
    ask(1, request::Barrier{"b", 3});
    CHECK(ask(1, request::CancelWait{}) == "byte 1");
    ask(2, request::Barrier{"b", 3});
    leave(2);
    CHECK(ask(3, request::Barrier{"b", 3}) == "byte 0");
  }

  TEST_CASE_FIXTURE(Clients,
                    "a member of a barrier does not wake a plain waiter of its key; its end does") {
    wait(1, {"b"});
    CHECK(ask(2, request::Barrier{"b", 2}) == "");
    CHECK(ask(3, request::Barrier{"b", 2}) == "byte 0, 1: byte 0, 2: byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "setting or adding to a barrier's key opens it, as in torch") {
    ask(1, request::Barrier{"b", 3});
    CHECK(ask(2, request::Add{"b", 1}) == "1: byte 0, 2");
    ask(1, request::Barrier{"c", 3});
    CHECK(ask(2, request::Set{"c", "v"}) == "1: byte 0");
  }

  TEST_CASE_FIXTURE(Clients, "a barrier on a key without a number closes the client") {
    ask(1, request::Set{"b", "text"});
    CHECK(ask(1, request::Barrier{"b", 2}) == "closed: BARRIER to 'b', which holds no number");
  }

  TEST_CASE("limits refuse what is new, close only who asked, and change nothing") {
    SUBCASE("keys") {
      Clients clients({.max_keys = 2});
      clients.ask(1, request::Set{"a", "1"});
      clients.ask(1, request::Set{"b", "1"});
      CHECK(clients.ask(1, request::Set{"c", "1"}) == "closed: no room for SET of 'c'");
      CHECK(clients.ask(1, request::Add{"c", 1}) == "closed: no room for ADD of 'c'");
      CHECK(clients.ask(2, request::Set{"b", "2"}) == "");
      CHECK(clients.ask(2, request::GetNumKeys{}) == "2");
    }
    SUBCASE("items of a queue") {
      Clients clients({.max_queue_items = 1});
      clients.ask(1, request::QueuePush{"q", "1"});
      CHECK(clients.ask(1, request::QueuePush{"q", "2"}) == "closed: a push to a queue of 1 items");
      CHECK(clients.ask(2, request::QueueLen{"q"}) == "1");
    }
    SUBCASE("bytes") {
      Clients clients({.max_bytes = 10'000});
      std::string large(9'000, 'x');
      clients.ask(1, request::Set{"a", large});
      CHECK(clients.ask(1, request::Set{"b", large}) == "closed: no room for SET of 'b'");
      CHECK(clients.ask(1, request::QueuePush{"q", large}) ==
            "closed: no room for QUEUE_PUSH of 'q'");
      CHECK(clients.ask(1, request::Append{"a", large}) == "closed: no room for APPEND of 'a'");
      CHECK(clients.ask(1, request::MultiSet{std::array{KeyValue{"c", large}}}) ==
            "closed: no room for a MULTI_SET of 1 keys");
      CHECK(clients.ask(1, request::Set{"a", large}) == "");
      CHECK(clients.ask(1, request::GetNumKeys{}) == "1");
    }
    SUBCASE("bytes of many small queues") {
      Clients clients({.max_bytes = 100'000});
      int count = 0;
      while (count < 1000 &&
             clients.ask(1, request::QueuePush{std::to_string(count), ""}).empty()) {
        ++count;
      }
      CHECK(count > 50);
      CHECK(count < 150);  // each takes 800 bytes of memory
    }
    SUBCASE("bytes of those who wait") {
      Clients clients({.max_bytes = 100'000});
      Keys same(3000, "a");  // 50 bytes of memory for each
      CHECK(clients.wait(1, same) == "closed: no room for WAIT of 'a'");
      ClientId count = 0;
      while (count < 1000 && clients.wait(2 + count, {"a"}).empty()) ++count;
      CHECK(count > 100);
      CHECK(count < 350);  // and 350 for the first name of each client
      for (ClientId i = 0; i <= count; ++i) clients.leave(2 + i);
      CHECK(clients.keyspace.bytes() == 0);
    }
    SUBCASE("keys awaited by one connection") {
      Clients clients({.max_awaited_keys = 2});
      CHECK(clients.wait(1, {"a", "b"}) == "");
      CHECK(clients.wait(1, {"c"}) == "closed: waits for 3 keys at once");
      CHECK(clients.wait(2, {"c"}) == "");
      CHECK(clients.leave(1) == "");
      CHECK(clients.leave(2) == "");
      CHECK(clients.keyspace.bytes() == 0);
    }
  }

  TEST_CASE_FIXTURE(Clients, "when all is deleted, popped and left, no byte is accounted for") {
    for (int i = 0; i < 100; ++i) {
      std::string name = "k" + std::to_string(i);
      ask(1, request::Set{name, "v"});
      ask(1, request::Append{name, "more"});
      ask(1, request::QueuePush{name, "item"});
      wait(2, {name, "never"});
    }
    leave(2);
    for (int i = 0; i < 100; ++i) {
      std::string name = "k" + std::to_string(i);
      CHECK(ask(1, request::DeleteKey{name}) == "1");
      CHECK(ask(1, request::QueuePop{name}) == "1, 'item'");
    }
    CHECK(keyspace.bytes() == 0);
    CHECK(keyspace.key_count() == 0);
  }
}
