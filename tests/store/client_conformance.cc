// SPDX-License-Identifier: BSD-3-Clause
//
// Every call of our client on the store that listens at HOST:PORT, whoever made that store.
//
//   store_client_conformance HOST:PORT [no-queues]
//
// Prints how many calls were as they should be, and whether the server has our extensions; exits
// with 1 at the first that was not.  tests/e2e/store_client_test.py runs it.
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "store/base/endpoint.h"
#include "store/client.h"

using namespace ddprun;
using namespace ddprun::store;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

constexpr auto kLimit = 30s;
constexpr auto kShort = 50ms;

struct Checks {
  int count = 0;

  void that(bool is_right, const std::string& what) {
    ++count;
    if (is_right) return;
    std::cerr << "not as it should be: " << what << std::endl;
    std::exit(1);
  }

  template <class T, class V>
  void equal(const Result<T>& result, const V& expected, const std::string& what) {
    that(result.has_value() && *result == expected,
         what + (result ? "" : ": " + to_string(result.error())));
  }

  void done(const Result<void>& result, const std::string& what) {
    that(result.has_value(), what + (result ? "" : ": " + to_string(result.error())));
  }

  template <class T>
  void timed_out(const Result<T>& result, const std::string& what) {
    that(result.has_error() && result.error().code == Errc::TimedOut, what);
  }
};

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

// Not braced lists: GCC 12 stumbles over them inside co_await.
const std::vector<std::string> kNone;
const std::vector<std::string> kBoth{"k", "n"};
const std::vector<std::string> kMissing{"k", "missing"};
const std::vector<std::string> kPair{"b", "a"};

asio::awaitable<void> check_keys(Client& client, Checks& checks) {
  checks.equal(co_await client.num_keys(), 0, "an empty store has no key");
  checks.done(co_await client.set("k", "v"), "set");
  checks.equal(co_await client.get("k", kLimit), "v", "get");
  checks.done(co_await client.set("k", ""), "set to nothing");
  checks.equal(co_await client.get("k", kLimit), "", "an empty value is a value");
  checks.done(co_await client.append("k", "one"), "append");
  checks.done(co_await client.append("k", std::string("\0two", 4)), "append");
  checks.equal(co_await client.get("k", kLimit), std::string("one\0two", 7), "bytes as they are");
  checks.equal(co_await client.add("n", 40), 40, "add to nothing");
  checks.equal(co_await client.add("n", -42), -2, "add");
  checks.equal(co_await client.get("n", kLimit), "-2", "a counter is text");
  checks.equal(co_await client.check(kBoth), true, "check");
  checks.equal(co_await client.check(kMissing), false, "check for a missing key");
  checks.equal(co_await client.check(kNone), true, "check for nothing");
  auto seen = co_await client.get_and_check("n", "k");
  checks.that(seen && seen->value == "-2" && seen->is_flagged, "get and check");
  seen = co_await client.get_and_check("n", "missing");
  checks.that(seen && seen->value == "-2" && !seen->is_flagged, "get, and check for nothing");
  checks.equal(co_await client.compare_set("c", "", "1"), "1", "compare_set of a missing key");
  checks.equal(co_await client.compare_set("c", "2", "3"), "1", "compare_set that differs");
  checks.equal(co_await client.compare_set("c", "1", "3"), "3", "compare_set that agrees");
  checks.equal(co_await client.compare_set("d", "x", "y"), "x", "compare_set stores nothing");
  checks.equal(co_await client.num_keys(), 3, "num_keys");
  checks.equal(co_await client.delete_key("c"), true, "delete");
  checks.equal(co_await client.delete_key("c"), false, "delete a missing key");
  auto names = co_await client.list_keys();
  checks.that(names && sorted(*names) == kBoth, "list_keys");
}

asio::awaitable<void> check_many(Client& client, Client& other, Checks& checks) {
  std::vector<std::pair<std::string, std::string>> pairs{{"a", "1"},
                                                         {"b", std::string(3 << 20, 'x')}};
  checks.done(co_await client.multi_set(pairs), "multi_set");
  auto values = co_await other.multi_get(kPair, kLimit);
  checks.that(values && values->at(0) == pairs[1].second && values->at(1) == "1", "multi_get");
  checks.equal(co_await client.multi_get(kNone, kLimit), kNone, "multi_get of nothing");
  std::vector<std::string> many;
  for (int i = 0; i < 2000; ++i) many.push_back("many" + std::to_string(i));
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& name : many) all.emplace_back(name, name);
  checks.done(co_await client.multi_set(all), "multi_set of many");
  checks.equal(co_await other.multi_get(many, kLimit), many, "multi_get of many");
}

asio::awaitable<void> check_waits(Client& client, Client& other, Checks& checks) {
  checks.done(co_await client.wait(kBoth, kLimit), "a wait for what is there");
  checks.timed_out(co_await client.wait(kMissing, kShort), "a wait that times out");
  checks.timed_out(co_await client.get("missing", 0ms), "a get without patience");
  checks.equal(co_await client.add("n", 2), 0, "the client is usable after a time-out");
  checks.timed_out(co_await client.barrier("alone", 2, kShort), "a barrier that times out");
  checks.done(co_await other.barrier("alone", 2, kLimit), "its second member");
  checks.done(co_await client.barrier("one", 1, kLimit), "a barrier of one");
}

asio::awaitable<void> check_queues(Client& client, Client& other, Checks& checks) {
  checks.equal(co_await client.queue_try_pop("q"), std::nullopt, "pop from nothing");
  checks.done(co_await client.queue_push("q", "a"), "push");
  checks.done(co_await client.queue_push("q", ""), "push nothing");
  checks.equal(co_await client.queue_len("q"), 2, "queue_len");
  checks.equal(co_await other.queue_pop("q", kLimit), "a", "pop");
  checks.equal(co_await other.queue_try_pop("q"), std::optional<std::string>(""), "try_pop");
  checks.timed_out(co_await client.queue_pop("q", kShort), "a pop that times out");
  checks.equal(co_await client.queue_len("q"), 0, "the client is usable after a time-out");
  checks.done(co_await other.queue_push("q", "c"), "push");
  auto some = co_await client.queue_pop_some("q", kLimit, 8);
  checks.that(some && *some == std::vector<std::string>(1, "c"), "pop some");
  checks.done(co_await other.queue_push("q", "a"), "push");
  checks.done(co_await other.queue_push("q", "b"), "push");
  checks.equal(co_await other.queue_len("q"), 2, "queue_len");
  std::vector<Client::Discarded> discarded(1);
  discarded[0].queue = "q";
  discarded[0].keys.emplace_back("no such key");
  checks.done(co_await client.discard(std::move(discarded)), "discard");
  checks.equal(co_await client.queue_len("q"), 0, "what is discarded is gone");
}

asio::awaitable<void> run(asio::io_context& context, Endpoint endpoint, bool has_queues,
                          Checks& checks) {
  auto client = co_await Client::connect(context.get_executor(), endpoint);
  auto other = co_await Client::connect(context.get_executor(), endpoint);
  checks.that(client && other, client ? "" : to_string(client.error()));
  co_await check_keys(**client, checks);
  co_await check_many(**client, **other, checks);
  co_await check_waits(**client, **other, checks);
  if (has_queues) co_await check_queues(**client, **other, checks);
  std::cout << checks.count << " calls as they should be, "
            << ((*client)->has_extensions() ? "with" : "without") << " extensions" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  Checks checks;
  asio::io_context context(1);
  bool has_queues = argc < 3 || argv[2] != std::string("no-queues");
  asio::co_spawn(context, run(context, parse_endpoint(argv[1], 29500).value(), has_queues, checks),
                 [](std::exception_ptr error) {
                   if (error) std::rethrow_exception(error);
                 });
  context.run();
  return 0;
}
