// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/host_search.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace ddprun::rendezvous::host_search;

namespace {

MonoTime at(double seconds) {
  return MonoTime(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

constexpr Duration kLease = std::chrono::seconds(5);

Searcher fresh() {
  return {.node = "b-1", .lease = kLease};
}
Searcher survivor() {
  return {.node = "b-1", .has_round = true, .lease = kLease};
}

HostEntry hosted_by(const std::string& node, std::uint64_t generation = 3) {
  return {.generation = generation, .node = node, .at = {.host = "10.0.0.1", .port = 4000}};
}

HostEntry with_round(HostEntry entry, std::uint64_t round) {
  entry.file = RunFile{.run = "r",
                       .run_uuid = "a-1",
                       .round = round,
                       .lease = kLease,
                       .nodes = {"a-1", "c-1"},
                       .by = "a-1@g"};
  return entry;
}

}  // namespace

TEST_CASE("where nobody hosts, a new node claims at once, and one that may not host waits") {
  HostEntry none;
  HostEntry over = hosted_by("a-1");
  over.is_over = true;
  for (const HostEntry& entry : {none, over}) {
    State state;
    CHECK(on_entry(state, entry, fresh(), at(10)) == Next::Claim);
    Searcher client = fresh();
    client.may_host = false;
    CHECK(on_entry(state, entry, client, at(10)) == Next::Wait);
    CHECK(on_entry(state, entry, client, at(1000)) == Next::Wait);
  }
}

TEST_CASE("a host that is named is reached first, whoever asks") {
  State state;
  for (const Searcher& searcher : {fresh(), survivor()})
    CHECK(on_entry(state, hosted_by("a-1"), searcher, at(10)) == Next::Reach);
}

TEST_CASE(
    "a new node takes the place of a host that is gone at once, and of a silent one after a "
    "lease") {
  State state;
  HostEntry entry = hosted_by("a-1");
  CHECK(on_failure(state, entry, true, fresh(), at(10)) == Next::Claim);

  state = {};
  CHECK(on_failure(state, entry, false, fresh(), at(10)) == Next::Wait);
  CHECK(on_failure(state, entry, false, fresh(), at(14.9)) == Next::Wait);
  CHECK(on_failure(state, entry, false, fresh(), at(15)) == Next::Claim);
}

TEST_CASE("a host that the registry has not heard of is tried, and then not waited for") {
  State state;
  HostEntry entry = hosted_by("a-1");
  entry.is_silent = true;
  CHECK(on_entry(state, entry, fresh(), at(10)) == Next::Reach);
  CHECK(on_failure(state, entry, false, fresh(), at(10)) == Next::Claim);

  // Nodes of a round have their own places.
  state = {};
  CHECK(on_failure(state, entry, false, survivor(), at(10)) == Next::Wait);
  CHECK(on_failure(state, entry, false, survivor(), at(15)) == Next::Claim);
}

TEST_CASE("the time of a silent host counts from when it was first tried") {
  State state;
  CHECK(on_failure(state, hosted_by("a-1", 3), false, fresh(), at(10)) == Next::Wait);
  // Another one hosts meanwhile.
  CHECK(on_failure(state, hosted_by("c-1", 4), false, fresh(), at(15)) == Next::Wait);
  CHECK(on_failure(state, hosted_by("c-1", 4), false, fresh(), at(20)) == Next::Claim);
}

TEST_CASE("a node of a round claims only when no place of the round was of use for a lease") {
  State state;
  HostEntry entry = hosted_by("a-1");
  CHECK(on_failure(state, entry, true, survivor(), at(10)) == Next::Wait);
  CHECK(on_failure(state, entry, true, survivor(), at(14)) == Next::Wait);
  CHECK(on_failure(state, entry, true, survivor(), at(15)) == Next::Claim);

  state = {};
  HostEntry none;
  CHECK(on_entry(state, none, survivor(), at(10)) == Next::Wait);
  CHECK(on_entry(state, none, survivor(), at(15)) == Next::Claim);

  // One that hosts when its turn comes has a place of its own.
  state = {};
  Searcher stand_in = survivor();
  stand_in.has_turn = true;
  CHECK(on_failure(state, entry, true, stand_in, at(10)) == Next::Wait);
  CHECK(on_failure(state, entry, true, stand_in, at(100)) == Next::Wait);
}

TEST_CASE(
    "the host of the run writes itself down where another one stands that had no later round") {
  CHECK(is_to_claim({}, "b-1", 0));
  CHECK_FALSE(is_to_claim(hosted_by("b-1"), "b-1", 7));
  CHECK(is_to_claim(hosted_by("a-1"), "b-1", 0));
  CHECK(is_to_claim(with_round(hosted_by("a-1"), 6), "b-1", 7));
  CHECK(is_to_claim(with_round(hosted_by("a-1"), 7), "b-1", 7));
  CHECK_FALSE(is_to_claim(with_round(hosted_by("a-1"), 8), "b-1", 7));
}

TEST_CASE("of two hosts in the registry the newer one comes first, and after all stand-ins") {
  CHECK(order_of(4) < order_of(3));
  CHECK(order_of(1'000'000) > 1000);
  CHECK(order_of(~std::uint64_t{0}) > 1000);
}

TEST_CASE("an entry is read as it was written") {
  HostEntry entry = hosted_by("a-1");
  entry.at.host = "fd00::1";
  for (bool is_over : {false, true}) {
    entry.is_over = is_over;
    for (int file = 0; file < 3; ++file) {
      entry.says_file = file > 0;
      entry.file = file == 2 ? with_round(entry, 7).file : std::nullopt;
      auto read = decode_host_entry(encode(entry));
      REQUIRE(read.has_value());
      CHECK(read->generation == 3);
      CHECK(read->node == "a-1");
      CHECK(read->at == entry.at);
      CHECK(read->is_over == is_over);
      CHECK(read->says_file == entry.says_file);
      REQUIRE(read->file.has_value() == (file == 2));
      if (file < 2) continue;
      CHECK(read->file->round == 7);
      CHECK(read->file->nodes == std::set<std::string>{"a-1", "c-1"});
      CHECK(read->file->by == "a-1@g");
    }
  }
}

TEST_CASE("what is no entry is refused, with the reason") {
  auto problem = [](const std::string& text) {
    auto read = decode_host_entry(text);
    REQUIRE_FALSE(read.has_value());
    CHECK(read.error().code == Errc::Protocol);
    return read.error().context;
  };
  CHECK(problem("") == "it is no JSON object");
  CHECK(problem("[1]") == "it is no JSON object");
  const std::string good = encode(hosted_by("a-1"));
  CHECK(problem(good.substr(0, good.size() / 2)) == "it is no JSON object");
  CHECK(problem("{}") == "field 'v' is no whole number");
  HostEntry none;
  none.node = "a-1";
  none.at.host = "h";
  CHECK(problem(encode(none)) == "field 'generation' is out of range");
  std::string bad = good;
  bad.insert(bad.size() - 1, R"(,"file":{"v":1})");
  CHECK(problem(bad).starts_with("field 'file': field 'run' is no text"));
}
