// SPDX-License-Identifier: BSD-3-Clause
#include "store/decide/namespaces.h"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/reply_text.h"

using namespace ddprun::store;
using namespace std::chrono_literals;
using namespace std::string_view_literals;

namespace {

// The namespaces of a server, and a few clients, known by number.
struct Clients {
  Namespaces namespaces;
  std::map<ClientId, Namespace*> places;
  ddprun::MonoTime now{};

  explicit Clients(KeyspaceLimits limits = {}, std::size_t max_named = 10)
      : namespaces(limits, max_named) {}

  std::string ask(ClientId client, const Request& request) {
    Replies replies;
    Namespace*& place = places.try_emplace(client, &namespaces.common()).first->second;
    auto fault = namespaces.execute(client, place, request, now, replies);
    return in_words(client, replies) + (fault ? "closed: " + *fault : "");
  }

  std::string enter(ClientId client, std::string_view name) {
    return ask(client, request::EnterNamespace{name});
  }

  std::string leave(ClientId client) {
    Replies replies;
    namespaces.disconnect(client, *places.at(client), now, replies);
    places.erase(client);
    return in_words(client, replies);
  }

  std::string expire() {
    Replies replies;
    namespaces.expire(now, replies);
    return in_words(0, replies);
  }

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

struct Bounded : Clients {
  Bounded() : Clients({.max_keys = 2, .max_bytes = 1700}, 2) {}
};

const std::array kKey{"k"sv};
const std::array kMissing{"x"sv, "y"sv};

}  // namespace

TEST_SUITE("store/decide/namespaces") {
  TEST_CASE_FIXTURE(Clients,
                    "keys, counts, waits and last wills are those of the client's own namespace") {
    CHECK(enter(1, "a") == "byte 0");
    CHECK(enter(2, "a") == "byte 0");
    CHECK(enter(3, "b") == "byte 0");
    ask(1, request::Set{"k", "v"});
    CHECK(ask(2, request::Get{"k"}) == "'v'");
    CHECK(ask(3, request::Get{"k"}) == "''");
    CHECK(ask(9, request::Get{"k"}) == "''");
    CHECK(ask(3, request::GetNumKeys{}) == "0");
    CHECK(ask(2, request::ListKeys{}) == "1, 'k'");
    CHECK(ask(3, request::Wait{kKey}) == "");
    CHECK(ask(9, request::Set{"k", "v"}) == "");
    CHECK(ask(2, request::QueueTake{"inbox", 1000}) == "");
    CHECK(ask(9, request::QueueTake{"inbox", 1000}) == "");
    CHECK(ask(1, request::LastWill{"inbox", "lost"}) == "byte 0");
    CHECK(leave(1) == "2: 1, 2: 'lost'");
  }

  TEST_CASE_FIXTURE(Clients, "a namespace is gone when nobody is in it and nothing is left in it") {
    enter(1, "a");
    ask(1, request::Set{"k", "v"});
    leave(1);
    CHECK(namespaces.named_count() == 1);
    enter(2, "a");
    CHECK(ask(2, request::DeleteKey{"k"}) == "1");
    CHECK(namespaces.named_count() == 1);
    leave(2);
    CHECK(namespaces.named_count() == 0);
    CHECK(namespaces.usage().bytes == 0);
  }

  TEST_CASE_FIXTURE(Clients, "a client moves on only when it leaves nothing behind") {
    enter(1, "a");
    ask(1, request::Wait{kKey});
    std::string refusal =
        "closed: ENTER_NAMESPACE from a namespace in which it waits or has a last will";
    CHECK(enter(1, "b") == refusal);
    CHECK(ask(1, request::CancelWait{}) == "byte 1");
    ask(1, request::LastWill{"q", "x"});
    CHECK(enter(1, "") == refusal);
    ask(1, request::ClearLastWill{});
    CHECK(enter(1, "b") == "byte 0");
    CHECK(namespaces.find("a") == nullptr);
    CHECK(enter(1, "b") == "byte 0");  // where it is already
    CHECK(enter(1, "") == "byte 0");
    CHECK(namespaces.named_count() == 0);
    CHECK(places[1] == &namespaces.common());
  }

  TEST_CASE_FIXTURE(Clients, "what was set aside is given back on the way out") {
    enter(1, "a");
    enter(2, "a");
    ask(2, request::QueuePush{"k", "item"});
    CHECK(ask(1, request::Wait{kKey}) == "byte 0");
    CHECK(ask(2, request::Wait{kKey}) == "");
    CHECK(enter(1, "b") == "2: byte 0, byte 0");
  }

  TEST_CASE_FIXTURE(Bounded, "a namespace too many is refused, and the client stays where it is") {
    enter(1, "a");
    enter(2, "b");
    CHECK(enter(3, "c") == "byte 1");
    CHECK(places[3] == &namespaces.common());
    CHECK(enter(3, "b") == "byte 0");
    leave(1);
    CHECK(enter(4, "c") == "byte 0");
  }

  TEST_CASE_FIXTURE(Bounded, "the namespace in which nobody has been for longest makes room") {
    enter(1, "a");
    ask(1, request::Set{"k", "v"});
    enter(2, "b");
    ask(2, request::Set{"k", "v"});
    leave(2);
    leave(1);
    CHECK(namespaces.named_count() == 2);
    CHECK(enter(3, "a") == "byte 0");  // somebody is in it again
    CHECK(enter(4, "c") == "byte 0");
    CHECK(namespaces.find("b") == nullptr);
    CHECK(ask(3, request::Get{"k"}) == "'v'");
    Replies none;
    while (namespaces.has_work()) namespaces.proceed(1, now, none);
    CHECK(ask(4, request::Set{"k", "v"}) == "");  // what was in it takes no room any more
    CHECK(enter(5, "d") == "byte 1");
    leave(3);
    CHECK(enter(5, "d") == "byte 0");
    CHECK(namespaces.find("a") == nullptr);
    leave(4);
    leave(5);  // with nothing in it
    CHECK(namespaces.named_count() == 1);
  }

  TEST_CASE_FIXTURE(Bounded, "the limits on keys and bytes hold for all namespaces together") {
    enter(1, "a");
    ask(1, request::Set{"k", "v"});
    ask(2, request::Set{"k", "v"});
    CHECK(ask(3, request::Set{"l", "v"}) == "closed: no room for SET of 'l'");
    CHECK(ask(1, request::DeleteKey{"k"}) == "1");
    CHECK(ask(3, request::Set{"l", "v"}) == "");
    std::string large(700, 'x');
    CHECK(ask(1, request::QueuePush{"q", large}) == "closed: no room for QUEUE_PUSH of 'q'");
    ask(2, request::DeleteKey{"k"});
    ask(3, request::DeleteKey{"l"});
    CHECK(ask(1, request::QueuePush{"q", large}) == "");
    CHECK(namespaces.usage().bytes == namespaces.find("a")->keyspace.bytes());
  }

  TEST_CASE_FIXTURE(Bounded, "what others fill leaves a reserved space its room") {
    namespaces.reserve("host");
    CHECK(enter(1, "host") == "byte 0");
    ask(2, request::Set{"k", std::string(1200, 'x')});
    CHECK(ask(3, request::LastWill{"q", "lost"}) == "closed: no room for LAST_WILL of 'q'");
    CHECK(ask(1, request::LastWill{"q", "lost"}) == "byte 0");
    CHECK(ask(1, request::QueueTake{"mail", 1000}) == "");
    for (const char* key : {"a", "b", "c"}) CHECK(ask(1, request::Set{key, "v"}) == "");
    CHECK(namespaces.usage().keys == 4);
  }

  TEST_CASE_FIXTURE(Bounded, "what fills a reserved space leaves the others their room") {
    namespaces.reserve("host");
    enter(1, "host");
    std::string large(1 << 20, 'x');
    std::string refusal;
    std::size_t count = 0;
    for (; refusal.empty() && count < 100; ++count) {
      refusal = ask(1, request::QueuePush{"q", large});
    }
    CHECK(refusal == "closed: no room for QUEUE_PUSH of 'q'");
    CHECK(count == Namespaces::kReservedBytes / large.size());
    CHECK(ask(2, request::Set{"k", "v"}) == "");
    CHECK(namespaces.usage().bytes ==
          namespaces.find("host")->keyspace.bytes() + namespaces.common().keyspace.bytes());
  }

  TEST_CASE_FIXTURE(Bounded, "a reserved space stays when nobody is in it") {
    namespaces.reserve("host");
    enter(1, "host");
    leave(1);
    CHECK(namespaces.find("host") != nullptr);
  }

  TEST_CASE("where nothing is limited, a reserved space is not either") {
    Clients clients({}, 1);
    clients.namespaces.reserve("host");
    clients.enter(1, "host");
    std::string large(8 << 20, 'x');
    for (int i = 0; i < 9; ++i) CHECK(clients.ask(1, request::QueuePush{"q", large}) == "");
  }

  TEST_CASE("the host's own clients store what they want") {
    Clients clients({.max_keys = 1, .max_queue_items = 1, .max_bytes = 1000});
    constexpr ClientId kOwn = kFirstOwnClient;
    clients.ask(1, request::Set{"k", "v"});
    CHECK(clients.ask(2, request::Set{"l", "v"}) == "closed: no room for SET of 'l'");
    std::string large(1000, 'x');
    std::array pairs{KeyValue{"a", large}, KeyValue{"b", large}};
    CHECK(clients.ask(kOwn, request::MultiSet{pairs}) == "");
    CHECK(clients.ask(kOwn, request::Set{"c", large}) == "");
    CHECK(clients.ask(kOwn, request::LastWill{"q", large}) == "byte 0");
    CHECK(clients.ask(kOwn, request::QueuePush{"q", large}) == "");
    CHECK(clients.ask(kOwn, request::QueuePush{"q", large}) == "");
    CHECK(clients.ask(kOwn, request::Wait{kMissing}) == "");
  }

  TEST_CASE_FIXTURE(Clients,
                    "renewing the common namespace forgets all that is in it, and only that") {
    enter(1, "a");
    ask(1, request::Set{"k", "own"});
    ask(1, request::QueueTake{"q", 2000});
    std::size_t own_bytes = namespaces.usage().bytes;
    ask(2, request::Set{"k", "v"});
    ask(2, request::LastWill{"q", "lost"});
    ask(2, request::QueuePush{"k", "item"});
    ask(3, request::Wait{std::array{"x"sv, "y"sv}});
    ask(3, request::QueueTake{"z", 1000});
    ask(4, request::Wait{kKey});
    namespaces.renew_common();
    CHECK(namespaces.usage().bytes == own_bytes);
    CHECK(namespaces.usage().keys == 1);
    CHECK(namespaces.wait_count() == 1);
    CHECK(leave(2) == "");
    CHECK(leave(3) == "");
    now += 1s;
    CHECK(expire() == "");
    CHECK(namespaces.deadline() == now + 1s);
    now += 1s;
    CHECK(expire() == "1: 0");
    CHECK_FALSE(namespaces.deadline());
    CHECK(ask(4, request::GetNumKeys{}) == "0");
    CHECK(ask(1, request::Get{"k"}) == "'own'");
  }

  TEST_CASE("large requests of all namespaces are carried out one after the other, in steps") {
    Namespaces namespaces({.names_at_once = 1}, 2);
    Replies replies;
    std::array names{"a"sv, "b"sv};
    request::Check check{names};
    Namespace* place = &namespaces.common();
    namespaces.execute(2, place, request::EnterNamespace{"s"}, {}, replies);
    replies.clear();
    REQUIRE(place->keyspace.is_large(check));
    namespaces.enqueue(1, namespaces.common(), check);
    namespaces.enqueue(2, *place, request::Wait{names});
    std::string ended;
    while (namespaces.has_work()) {
      auto done = namespaces.proceed(1, {}, replies);
      if (done) ended += std::to_string(done->client);
    }
    CHECK(ended == "12");
    CHECK(replies.size() == 1);
    CHECK(namespaces.wait_count() == 1);

    namespaces.disconnect(2, *place, {}, replies);
    while (namespaces.has_work()) namespaces.proceed(1, {}, replies);
    CHECK(namespaces.find("s") == nullptr);
    CHECK(namespaces.usage().bytes == 0);
  }

  TEST_CASE("renewing the common namespace forgets large requests in it, and no others") {
    Namespaces namespaces({.names_at_once = 1}, 2);
    Replies replies;
    std::array names{"a"sv, "b"sv};
    Namespace* place = &namespaces.common();
    namespaces.execute(2, place, request::EnterNamespace{"s"}, {}, replies);
    namespaces.enqueue(1, namespaces.common(), request::Wait{names});
    namespaces.enqueue(2, *place, request::Check{names});
    namespaces.proceed(1, {}, replies);
    namespaces.renew_common();
    replies.clear();
    std::optional<Namespaces::Done> done;
    for (int i = 0; i < 2 && !done; ++i) done = namespaces.proceed(9, {}, replies);
    REQUIRE(done.has_value());
    CHECK(done->client == 2);
    CHECK(replies.size() == 1);
    CHECK_FALSE(namespaces.has_work());
    CHECK(namespaces.usage().bytes == 0);
  }

  TEST_CASE_FIXTURE(Clients, "what was in the common namespace is freed step by step") {
    for (int i = 0; i < 1000; ++i) ask(1, request::Set{std::to_string(i), "v"});
    for (int i = 0; i < 1000; ++i) ask(1, request::QueuePush{"q", "item"});
    for (int i = 0; i < 50; ++i) ask(2, request::Wait{std::array{"x"sv, "y"sv}});
    ask(3, request::LastWill{"q", "lost"});
    std::size_t bytes = namespaces.usage().bytes;
    namespaces.renew_common();
    CHECK(namespaces.usage().bytes == 0);
    CHECK(namespaces.former_bytes() == bytes);
    Replies replies;
    int steps = 0;
    for (; namespaces.former_bytes() > 0; ++steps) {
      if (steps == 2) ask(4, request::Set{"0", "new"});
      CHECK_FALSE(namespaces.proceed(100, now, replies));
    }
    CHECK(steps >= 2000 / 100);
    CHECK(steps <= 3000 / 100);
    CHECK(replies.empty());
    CHECK(ask(4, request::Get{"0"}) == "'new'");
    CHECK(ask(4, request::GetNumKeys{}) == "1");
  }

  TEST_CASE_FIXTURE(Clients, "without a limit, nothing waits for memory to be freed") {
    Namespace& ns = namespaces.common();
    CHECK_FALSE(namespaces.must_wait_for(1 << 30, 1, ns, request::Set{"k", "v"}));
  }

  TEST_CASE("what is gone and not freed yet counts for the limit: what stores something waits") {
    Clients clients({.max_bytes = 10'000}, 2);
    Namespaces& namespaces = clients.namespaces;
    clients.ask(1, request::Set{"old", std::string(4000, 'v')});
    namespaces.reserve("own");
    auto waits = [&](std::size_t unfreed, const Request& request, ClientId client = 1,
                     std::string_view name = "") {
      return namespaces.must_wait_for(unfreed, client, *namespaces.find(name), request);
    };
    const std::string value(1000, 'v');
    const KeyValue pairs[] = {{"k", value}, {"l", value}};
    CHECK_FALSE(waits(0, request::Set{"k", value}));
    CHECK_FALSE(waits(4000, request::Set{"k", value}));
    CHECK(waits(5000, request::Set{"k", value}));
    CHECK(waits(5000, request::CompareSet{"k", "", value}));
    CHECK(waits(5000, request::Append{"old", value}));
    CHECK(waits(5000, request::QueuePush{"q", value}));
    CHECK(waits(5000, request::LastWill{"q", value}));
    CHECK_FALSE(waits(3000, request::MultiSet{std::span(pairs).first(1)}));
    CHECK(waits(4000, request::MultiSet{pairs}));
    CHECK_FALSE(waits(9000, request::Get{"old"}));
    CHECK_FALSE(waits(9000, request::DeleteKey{"old"}));
    CHECK_FALSE(waits(9000, request::Ping{1}));
    CHECK_FALSE(waits(9000, request::Set{"k", value}, kFirstOwnClient));
    CHECK_FALSE(waits(9000, request::Set{"k", value}, 1, "own"));
    // What there never is room for is not made to wait; it is refused.
    clients.ask(1, request::DeleteKey{"old"});
    CHECK_FALSE(waits(5000, request::Set{"k", value}));
    CHECK(waits(9000, request::Set{"k", value}));
    CHECK_FALSE(waits(9000, request::Set{"k", std::string(20'000, 'v')}));
  }

  TEST_CASE("what ended waits leave behind is tidied up in all namespaces in turns") {
    Namespaces namespaces({.names_at_once = 1}, 3);
    Replies replies;
    std::array<std::string_view, 4> names{"a", "b", "c", "d"};
    std::array<Namespace*, 3> places;
    places.fill(&namespaces.common());
    for (ClientId client = 1; client < 3; ++client) {
      auto name = std::to_string(client);
      namespaces.execute(client, places[client], request::EnterNamespace{name}, {}, replies);
    }
    for (ClientId client = 0; client < 3; ++client) {
      namespaces.execute(client, places[client], request::Wait{names}, {}, replies);
      namespaces.execute(client, places[client], request::CancelWait{}, {}, replies);
    }
    std::array<std::size_t, 3> bytes;
    for (std::size_t i = 0; i < 3; ++i) bytes[i] = places[i]->keyspace.bytes();
    for (int i = 0; i < 3; ++i) namespaces.proceed(1, {}, replies);
    for (std::size_t i = 0; i < 3; ++i) CHECK(places[i]->keyspace.bytes() < bytes[i]);
    while (namespaces.has_work()) namespaces.proceed(1, {}, replies);
    CHECK(namespaces.usage().bytes == 0);
  }

  TEST_CASE_FIXTURE(Clients, "times are kept in every space") {
    for (ClientId client = 1; client <= 3; ++client) {
      enter(client, std::to_string(client));
      ask(client, request::QueueTake{"q", std::int64_t(1000 * client)});
    }
    CHECK(namespaces.deadline() == now + 1s);
    now += 2s;
    CHECK(expire() == "1: 0, 2: 0");
    CHECK(namespaces.deadline() == now + 1s);
  }

  TEST_CASE_FIXTURE(Clients, "of very many that end at once some are ended at a time") {
    constexpr std::size_t kClients = 10'000;
    for (ClientId client = 1; client <= kClients; ++client) {
      if (client % 2 == 0) enter(client, std::to_string(client % 10));
      ask(client, request::QueueTake{"q", 1000});
    }
    now += 1s;
    std::size_t ended = 0;
    int steps = 0;
    for (; namespaces.deadline(); ++steps) {
      Replies replies;
      namespaces.expire(now, replies);
      CHECK(replies.size() <= 4096);
      ended += replies.size();
    }
    CHECK(ended == kClients);
    CHECK(steps == 3);
  }

  TEST_CASE_FIXTURE(Clients, "a client may have so many waits, of whatever kind, and no more") {
    std::vector<std::string> names;
    for (int i = 0; i < 5000; ++i) names.push_back("k" + std::to_string(i));
    std::vector<std::string_view> many(names.begin(), names.end());
    for (int i = 0; i < 64; ++i) CHECK(ask(1, request::Wait{std::array{"a"sv}}) == "");
    CHECK(ask(1, request::Wait{std::array{"a"sv}}) == "closed: waits 65 times at once");
    CHECK(ask(1, request::QueueTake{"q", 1000}) == "closed: waits 65 times at once");
    CHECK(ask(1, request::Barrier{"b", 2}) == "closed: waits 65 times at once");
    namespaces.enqueue(1, namespaces.common(), request::Wait{many});
    Replies replies;
    auto done = namespaces.proceed(1, now, replies);
    REQUIRE(done.has_value());
    CHECK(done->fault == "waits 65 times at once");
    CHECK(ask(2, request::Wait{std::array{"a"sv}}) == "");
    CHECK(ask(1, request::CancelWait{}) == "byte 1");
    CHECK(ask(1, request::Wait{std::array{"a"sv}}) == "");
  }
}
