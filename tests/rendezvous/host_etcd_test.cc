// SPDX-License-Identifier: BSD-3-Clause
//
// With a real etcd, which with_etcd.py starts.
#include "rendezvous/host_etcd.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "store/base/check.h"
#include "store/socket.h"
#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

std::vector<Endpoint> members() {
  const char* text = std::getenv("DDPRUN_TEST_ETCD");
  check(text != nullptr, "run by with_etcd.py");
  std::vector<Endpoint> members;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');)
    members.push_back(parse_endpoint(part, 2379).value());
  return members;
}

EtcdPlace place() {
  EtcdPlace place;
  place.client.members = members();
  place.prefix = "/test";
  place.lease = 1s;
  return place;
}

// One process of a run; each test has a run of its own.
struct Process {
  Process(asio::io_context& context_, const std::string& run, EtcdPlace where = place())
      : context(context_), registry(context.get_executor(), std::move(where), run) {
    registry.log_to([this](const std::string& line) { log.push_back(line); });
  }
  ~Process() { end(); }
  void end() {
    registry.close();
    bool has_ended = false;
    asio::co_spawn(context, registry.stop(), [&](std::exception_ptr) { has_ended = true; });
    CHECK(test::run_until(context, [&] { return has_ended; }));
  }
  template <class T>
  Result<T> outcome(store::Async<T> call) {
    std::optional<Result<T>> result;
    asio::co_spawn(context, std::move(call), [&](std::exception_ptr error, Result<T> value) {
      CHECK_FALSE(error);
      result = std::move(value);
    });
    REQUIRE(test::run_until(context, [&] { return result.has_value(); }));
    return std::move(*result);
  }
  bool claim(const HostEntry& entry) { return outcome(registry.claim(entry)).value(); }
  bool note(const HostEntry& entry) { return outcome(registry.note(entry)).value(); }
  HostEntry newest() { return outcome(registry.newest()).value(); }
  // Once it is as `is_wanted` says.
  template <class Claim>
  HostEntry newest_once(Claim is_wanted) {
    auto end = std::chrono::steady_clock::now() + 20s;
    HostEntry entry = newest();
    while (!is_wanted(entry) && std::chrono::steady_clock::now() < end) entry = newest();
    CHECK(is_wanted(entry));
    return entry;
  }

  asio::io_context& context;
  std::vector<std::string> log;
  EtcdRegistry registry;
};

HostEntry entry_of(std::uint64_t generation, const std::string& node) {
  return {.generation = generation, .node = node, .at = {.host = "10.0.0.7", .port = 29400}};
}

RunFile file_of(std::uint64_t round) {
  return {.run = "run", .run_uuid = "u", .round = round, .lease = 15s, .nodes = {"a", "b"}};
}

bool is_heard(const HostEntry& entry) {
  return !entry.is_silent;
}

}  // namespace

TEST_CASE("etcd: the first entry of a run, and what others read of it") {
  asio::io_context context;
  Process one(context, "first");
  Process two(context, "first");
  Process other_run(context, "first2");
  CHECK(one.newest().generation == 0);
  CHECK(one.claim(entry_of(1, "a")));
  HostEntry seen = two.newest_once(is_heard);
  CHECK(seen.generation == 1);
  CHECK(seen.node == "a");
  CHECK(seen.at == Endpoint{.host = "10.0.0.7", .port = 29400});
  CHECK_FALSE(seen.is_over);
  CHECK_FALSE(seen.says_file);
  CHECK_FALSE(seen.file.has_value());
  CHECK(other_run.newest().generation == 0);
}

TEST_CASE("etcd: only the next generation can be claimed, and once") {
  asio::io_context context;
  Process one(context, "once");
  Process two(context, "once");
  CHECK_FALSE(one.claim(entry_of(2, "a")));
  CHECK(one.claim(entry_of(1, "a")));
  CHECK_FALSE(two.claim(entry_of(1, "b")));
  CHECK_FALSE(two.claim(entry_of(3, "b")));
  CHECK(two.claim(entry_of(2, "b")));
  CHECK_FALSE(one.claim(entry_of(2, "a")));
  CHECK(two.newest().node == "b");
}

TEST_CASE("etcd: a claim whose answer was lost is true when it is made again") {
  asio::io_context context;
  Process one(context, "again");
  CHECK(one.claim(entry_of(1, "a")));
  CHECK(one.claim(entry_of(1, "a")));
}

TEST_CASE("etcd: of those that claim at one time exactly one has it") {
  asio::io_context context;
  std::vector<std::unique_ptr<Process>> all;
  for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<Process>(context, "race"));
  for (std::uint64_t generation = 1; generation <= 10; ++generation) {
    std::vector<std::optional<Result<bool>>> answers(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      asio::co_spawn(context, all[i]->registry.claim(entry_of(generation, std::to_string(i))),
                     [&answers, i](std::exception_ptr, Result<bool> is_ours) {
                       answers[i] = std::move(is_ours);
                     });
    }
    REQUIRE(test::run_until(context, [&] {
      return std::ranges::all_of(answers, [](const auto& answer) { return answer.has_value(); });
    }));
    std::vector<std::size_t> winners;
    for (std::size_t i = 0; i < answers.size(); ++i) {
      REQUIRE(answers[i]->has_value());
      if (**answers[i]) winners.push_back(i);
    }
    REQUIRE(winners.size() == 1);
    CHECK(all[0]->newest().node == std::to_string(winners[0]));
  }
}

TEST_CASE("etcd: the run file stays until another host says what it is") {
  asio::io_context context;
  Process one(context, "file");
  Process two(context, "file");
  HostEntry entry = entry_of(1, "a");
  CHECK(one.claim(entry));
  entry.says_file = true;
  entry.file = file_of(3);
  CHECK(one.note(entry));
  HostEntry seen = two.newest();
  CHECK(seen.says_file);
  REQUIRE(seen.file.has_value());
  CHECK(seen.file->round == 3);
  CHECK(seen.file->nodes == std::set<std::string>{"a", "b"});

  CHECK(two.claim(entry_of(2, "b")));
  seen = one.newest();
  CHECK(seen.node == "b");
  CHECK_FALSE(seen.says_file);
  REQUIRE(seen.file.has_value());
  CHECK(seen.file->round == 3);

  entry.file = file_of(4);
  CHECK_FALSE(one.note(entry));
  CHECK(one.newest().file->round == 3);

  HostEntry none = entry_of(2, "b");
  none.says_file = true;
  CHECK(two.note(none));
  seen = one.newest();
  CHECK(seen.says_file);
  CHECK_FALSE(seen.file.has_value());
}

TEST_CASE("etcd: a note and a claim of the next generation at one time do not miss each other") {
  asio::io_context context;
  Process one(context, "beside");
  Process two(context, "beside");
  CHECK(one.claim(entry_of(1, "a")));
  for (std::uint64_t generation = 1; generation <= 15; ++generation) {
    HostEntry noted = entry_of(generation, generation % 2 == 1 ? "a" : "b");
    noted.says_file = true;
    noted.file = file_of(generation);
    Process& host = generation % 2 == 1 ? one : two;
    Process& next = generation % 2 == 1 ? two : one;
    std::optional<Result<bool>> is_noted;
    std::optional<Result<bool>> is_claimed;
    asio::co_spawn(context, host.registry.note(noted),
                   [&](std::exception_ptr, Result<bool> is) { is_noted = std::move(is); });
    asio::co_spawn(context,
                   next.registry.claim(entry_of(generation + 1, generation % 2 == 1 ? "b" : "a")),
                   [&](std::exception_ptr, Result<bool> is) { is_claimed = std::move(is); });
    REQUIRE(test::run_until(context, [&] { return is_noted && is_claimed; }));
    CHECK(is_claimed->value());
    HostEntry seen = next.newest();
    CHECK(seen.generation == generation + 1);
    if (is_noted->value()) {
      REQUIRE(seen.file.has_value());
      CHECK(seen.file->round == generation);
    }
  }
}

TEST_CASE("etcd: a host is heard as long as its process lives, and silent after its lease") {
  asio::io_context context;
  Process one(context, "silent");
  Process two(context, "silent");
  CHECK(one.claim(entry_of(1, "a")));
  two.newest_once(is_heard);
  auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begin + 3s) REQUIRE(is_heard(two.newest()));
  one.end();
  HostEntry seen = two.newest_once([](const HostEntry& entry) { return entry.is_silent; });
  CHECK(seen.generation == 1);
  CHECK_FALSE(seen.is_over);
  CHECK(two.claim(entry_of(2, "b")));
  CHECK(one.log.empty());
}

TEST_CASE("etcd: a host that another one follows keeps its lease no more") {
  asio::io_context context;
  Process one(context, "followed");
  Process two(context, "followed");
  CHECK(one.claim(entry_of(1, "a")));
  CHECK(two.claim(entry_of(2, "b")));
  two.newest_once(is_heard);
  two.end();
  one.newest_once([](const HostEntry& entry) { return entry.generation == 2 && entry.is_silent; });
}

TEST_CASE("etcd: a run that is over says so, and can be begun again") {
  asio::io_context context;
  Process one(context, "over");
  Process two(context, "over");
  HostEntry entry = entry_of(1, "a");
  CHECK(one.claim(entry));
  entry.says_file = true;
  entry.is_over = true;
  CHECK(one.note(entry));
  HostEntry seen = two.newest();
  CHECK(seen.is_over);
  CHECK(seen.generation == 1);
  CHECK(two.claim(entry_of(2, "b")));
  CHECK_FALSE(two.newest_once(is_heard).is_over);
}

TEST_CASE("etcd: an entry that is none is named") {
  asio::io_context context;
  Process one(context, "garbage");
  etcd::Client client(context.get_executor(), place().client);
  etcd::Txn txn;
  txn.puts.push_back({.key = "/test/host/garbage", .value = "{}"});
  auto end = std::chrono::steady_clock::now() + 5s;
  REQUIRE(one.outcome(client.commit(txn, end)).value().has_value());
  auto newest = one.outcome(one.registry.newest());
  REQUIRE_FALSE(newest.has_value());
  CHECK(newest.error().code == Errc::InvalidInput);
  CHECK(to_string(newest.error()).find("the value of /test/host/garbage: field ") !=
        std::string::npos);
}

TEST_CASE("etcd: one that does not answer costs a call its time, and close() ends it at once") {
  asio::io_context context;
  Fd mute = store::listen_on({.host = "127.0.0.1", .port = 0}).value();
  EtcdPlace where = place();
  where.client.members.assign(1, store::local_endpoint(mute.get()).value());
  Process one(context, "mute", where);
  auto begin = std::chrono::steady_clock::now();
  auto newest = one.outcome(one.registry.newest());
  REQUIRE_FALSE(newest.has_value());
  CHECK(newest.error().code == Errc::TimedOut);
  CHECK(to_string(newest.error()) == "no member of etcd can be used: " +
                                         to_string(where.client.members[0]) + " has not answered");
  CHECK(std::chrono::steady_clock::now() - begin >= kRegistryPatience);

  std::optional<Result<bool>> answer;
  asio::co_spawn(context, one.registry.claim(entry_of(1, "a")),
                 [&](std::exception_ptr, Result<bool> is_ours) { answer = std::move(is_ours); });
  context.restart();
  context.poll();
  CHECK_FALSE(answer.has_value());
  one.registry.close();
  REQUIRE(test::run_until(context, [&] { return answer.has_value(); }));
  REQUIRE_FALSE(answer->has_value());
  CHECK(answer->error().code == Errc::Closed);
}
