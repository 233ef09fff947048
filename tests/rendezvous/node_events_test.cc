// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/decide/node_events.h"

#include <doctest/doctest.h>

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

// What is heard of nodes whose ids are their names in capitals.
struct Book {
  NodeEvents events;
  coordinator::State state;
  WallTime at{};

  void hears(const std::string& id, Request request) {
    at += 1s;
    events.heard({.run = "job", .node = id, .request = std::move(request)}, &state, at);
  }
  void joins(const std::string& id, const std::string& host) {
    state.nodes[id].join.host = host;
    hears(id, request::Join{.host = host});
  }
  std::vector<std::string> lines(bool is_trusted = true) const {
    std::vector<std::string> lines;
    for (const NodeEvent& event : events.all())
      lines.push_back(std::string(name_of(event.kind)) + ": " + event.host + " " +
                      (is_trusted ? event.what : event.briefly));
    return lines;
  }
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_SUITE("rendezvous/decide/node_events") {
  TEST_CASE("what nodes say of themselves, in order; heartbeats are nothing") {
    Book book;
    book.joins("A", "a");
    book.hears("A", request::Heartbeat{});
    book.hears("A", request::Lost{});
    book.hears("A", request::Resume{});
    book.hears("A", request::Leaving{.why = "was stopped by SIGTERM", .signal = 15});
    book.state.nodes.erase("A");
    book.hears("A", request::Left{});
    book.hears("A", request::Lost{});  // it is no node any more
    CHECK(book.lines() == Lines{"joined: a joined", "away: a lost its connection",
                                "back: a is back on a new connection",
                                "leaving: a was stopped by SIGTERM", "left: a has left"});
    CHECK(book.events.all()[1].at == WallTime(3s));
  }

  TEST_CASE("a failure has its worker's words for trusted readers only") {
    Book book;
    book.joins("A", "a");
    book.hears(
        "A", request::Failed{
                 .failure = {
                     .rank = 1, .pid = 7, .status = {.exit_code = 3}, .message = "token=hunter2"}});
    CHECK(book.lines()[1] == "failed: a reported: rank 1 exited with code 3: token=hunter2");
    CHECK(book.lines(false)[1] == "failed: a reported: rank 1 exited with code 3");
  }

  TEST_CASE("a node that was given up has the reason that the others were told") {
    Book book;
    book.joins("A", "a");
    book.joins("B", "b");
    book.state.nodes.erase("A");
    book.state.last_stop = command::Stop{.why = "a was lost (nothing heard for 5 s)"};
    book.events.look(book.state, book.at);
    book.events.look(book.state, book.at);
    book.state.nodes.erase("B");
    book.events.look(book.state, book.at);
    CHECK(book.lines().size() == 4);
    CHECK(book.lines()[2] == "lost: a was lost (nothing heard for 5 s)");
    CHECK(book.lines()[3] == "lost: b is no longer in the run");
  }

  TEST_CASE("they are bounded, and so are the failures of a round") {
    Book book;
    book.joins("A", "a");
    for (int i = 0; i < 100; ++i) book.hears("A", request::Failed{});
    CHECK(book.lines().size() == 1 + NodeEvents::kFailuresOfRound);
    book.events.round_began();
    book.hears("A", request::Failed{});
    CHECK(book.lines().size() == 2 + NodeEvents::kFailuresOfRound);
    for (int i = 0; i < 1000; ++i) book.hears("A", request::Lost{});
    CHECK(book.lines().size() == NodeEvents::kKept);
  }

  TEST_CASE("a run that another host had, or this one before it was started again, says so") {
    Book book;
    book.events.took_over(4, WallTime(1s));
    CHECK(book.lines() ==
          Lines{"took_over:  this host took the run over after round 4: from another one, or from "
                "itself before it was started again"});
  }
}
