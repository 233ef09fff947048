// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/registered_host.h"

#include <doctest/doctest.h>

#include <boost/asio/co_spawn.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/event_loop.h"

using namespace ddprun;
using namespace ddprun::rendezvous;

namespace {

namespace asio = boost::asio;

const Endpoint kHere{.host = "10.0.0.1", .port = 4000};

// What all nodes see.
struct Board {
  std::vector<HostEntry> entries;
  int failures = 0;  // of the next calls
  int calls = 0;
  int notes = 0;

  HostEntry newest() const {
    HostEntry found = entries.empty() ? HostEntry{} : entries.back();
    for (const HostEntry& entry : entries) {
      if (entry.says_file) found.file = entry.file;
    }
    return found;
  }
  void claim_for(const std::string& node, std::optional<RunFile> file = std::nullopt) {
    entries.push_back({.generation = entries.size() + 1,
                       .node = node,
                       .at = {.host = "10.0.0.2", .port = 5000},
                       .says_file = file.has_value(),
                       .file = std::move(file)});
  }
};

class FakeRegistry final : public HostRegistry {
 public:
  explicit FakeRegistry(Board& board) : board_(board) {}

  std::string name() const override { return "a board"; }
  store::Async<HostEntry> newest() override {
    if (fails()) co_return failure();
    co_return board_.newest();
  }
  store::Async<bool> claim(HostEntry entry) override {
    if (fails()) co_return failure();
    bool is_next = entry.generation == board_.entries.size() + 1;
    if (is_next) board_.entries.push_back(std::move(entry));
    co_return is_next;
  }
  store::Async<bool> note(HostEntry entry) override {
    if (fails()) co_return failure();
    ++board_.notes;
    bool is_newest = entry.generation == board_.entries.size();
    if (is_newest) board_.entries.back() = std::move(entry);
    co_return is_newest;
  }
  void close() override {}

 private:
  bool fails() {
    ++board_.calls;
    return board_.failures > 0 && board_.failures-- > 0;
  }
  static Error failure() { return {Errc::TimedOut, "a board: it is dark"}; }

  Board& board_;
};

RunFile round_of(std::uint64_t round) {
  return {.run = "run",
          .run_uuid = "a-1",
          .round = round,
          .lease = std::chrono::seconds(5),
          .nodes = {"a-1", "b-1"},
          .by = "a-1@g"};
}

struct Desk {
  asio::io_context loop{1};
  Board board;
  std::vector<std::string> log;
  RegisteredHost host{loop.get_executor(),
                      {.registry = std::make_unique<FakeRegistry>(board),
                       .node = "a-1",
                       .log = [this](const std::string& line) { log.push_back(line); }}};

  ~Desk() {
    bool is_stopped = false;
    asio::co_spawn(loop, host.stop(), [&](std::exception_ptr) { is_stopped = true; });
    test::run_until(loop, [&] { return is_stopped; });
  }
  template <class T>
  T run(asio::awaitable<T> task) {
    std::optional<T> result;
    asio::co_spawn(loop, std::move(task), [&](std::exception_ptr error, T value) {
      REQUIRE(error == nullptr);
      result = std::move(value);
    });
    REQUIRE(test::run_until(loop, [&] { return result.has_value(); }));
    return std::move(*result);
  }
  // `may` has the answer once there is one.
  void ask_to_begin(std::optional<bool>& may) {
    asio::co_spawn(loop, host.may_begin(round_of(0)),
                   [&may](std::exception_ptr, bool begins) { may = begins; });
    settle();
  }
  void settle() {
    for (int turn = 0; turn < 100; ++turn) {
      loop.restart();
      loop.poll();
    }
  }
};

}  // namespace

TEST_SUITE("rendezvous/registered_host") {
  TEST_CASE_FIXTURE(Desk, "a host that has claimed may begin, and its rounds are noted") {
    CHECK(run(host.claim(1, kHere)).value());
    CHECK(board.newest().node == "a-1");
    CHECK(board.newest().at == kHere);
    CHECK(run(host.may_begin(round_of(0))));
    CHECK(board.newest().file->round == 0);
    host.keep(kHere, round_of(1));
    settle();
    CHECK(board.newest().file->round == 1);
    host.drop();
    settle();
    CHECK_FALSE(board.newest().file.has_value());
    CHECK(board.entries.size() == 1);
  }

  TEST_CASE_FIXTURE(Desk, "a host that another one has followed may not begin, nor claims again") {
    CHECK(run(host.claim(1, kHere)).value());
    board.claim_for("b-1");
    CHECK_FALSE(run(host.may_begin(round_of(0))));
    settle();
    CHECK(board.newest().node == "b-1");
    CHECK(board.entries.size() == 2);
  }

  TEST_CASE_FIXTURE(Desk, "a first round waits until the registry answers") {
    CHECK(run(host.claim(1, kHere)).value());
    board.failures = 2;
    CHECK(run(host.may_begin(round_of(0))));
    CHECK(board.newest().file->round == 0);
    REQUIRE(log.size() == 1);
    CHECK(log.front() ==
          "it cannot be written down that this node hosts the run; trying again: a board: it is "
          "dark");
  }

  TEST_CASE_FIXTURE(Desk, "a host that leaves while its first round waits does not begin it") {
    CHECK(run(host.claim(1, kHere)).value());
    board.failures = 1000;
    std::optional<bool> may;
    ask_to_begin(may);
    CHECK_FALSE(may.has_value());
    host.leave();
    REQUIRE(test::run_until(loop, [&] { return may.has_value(); }));
    CHECK_FALSE(*may);
  }

  TEST_CASE_FIXTURE(Desk, "a host whose first round waits does not claim past one that followed") {
    CHECK(run(host.claim(1, kHere)).value());
    board.failures = 1;
    std::optional<bool> may;
    ask_to_begin(may);
    board.claim_for("b-1", round_of(0));
    host.confirm();  // a knock has found the other one in the registry
    settle();
    CHECK(board.entries.size() == 2);
    REQUIRE(test::run_until(loop, [&] { return may.has_value(); }));
    CHECK_FALSE(*may);
    CHECK(board.entries.size() == 2);
  }

  TEST_CASE_FIXTURE(Desk, "one that stands in claims when it has a round, and tries until it has") {
    board.claim_for("b-1", round_of(3));
    board.failures = 1;
    host.keep(kHere, round_of(4));
    REQUIRE(test::run_until(loop, [&] { return board.entries.size() == 2; }));
    CHECK(board.newest().node == "a-1");
    CHECK(board.newest().file->round == 4);
    CHECK(log.size() == 1);
  }

  TEST_CASE_FIXTURE(Desk, "a host with an older round than another one's does not claim") {
    board.claim_for("b-1", round_of(5));
    host.keep(kHere, round_of(4));
    settle();
    CHECK(board.newest().node == "b-1");
  }

  TEST_CASE_FIXTURE(Desk, "the run's host stands there again after another node has claimed") {
    CHECK(run(host.claim(1, kHere)).value());
    host.keep(kHere, round_of(2));
    settle();
    board.claim_for("b-1");
    host.confirm();
    settle();
    CHECK(board.newest().node == "a-1");
    CHECK(board.newest().generation == 3);
    host.leave();
    board.claim_for("b-1");
    host.confirm();  // there is no run here any more
    settle();
    CHECK(board.newest().node == "b-1");
  }

  TEST_CASE_FIXTURE(Desk, "a claim that did not seem to have succeeded is found") {
    board.claim_for("a-1");
    host.keep(kHere, round_of(0));
    settle();
    CHECK(board.entries.size() == 1);
    CHECK(board.newest().file->round == 0);
  }

  TEST_CASE_FIXTURE(Desk,
                    "at its end a host says that it is over, unless another one has followed") {
    CHECK(run(host.claim(1, kHere)).value());
    bool is_done = false;
    SUBCASE("it stands there") {}
    SUBCASE("another one does") {
      board.claim_for("b-1");
    }
    asio::co_spawn(loop, host.give_up(), [&](std::exception_ptr) { is_done = true; });
    REQUIRE(test::run_until(loop, [&] { return is_done; }));
    CHECK(board.newest().is_over == (board.entries.size() == 1));
  }
}
