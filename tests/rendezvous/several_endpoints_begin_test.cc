// SPDX-License-Identifier: BSD-3-Clause
//
// A run whose nodes have several endpoints, a ddpd at each: where its first round begins, and when
// a round is over at one of them.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/waiting_text.h"
#include "tests/rendezvous/daemon.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace ddprun::rendezvous::test;
using namespace std::chrono_literals;

TEST_CASE("Several endpoints: the first round begins at the first of them") {
  Daemon first(0, "d1@0");
  Daemon second(1, "d2@0");
  first.last_call = second.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    first.says(node, first.join_of(node));
    second.says(node, second.join_of(node));
  }
  CHECK(first.told<command::Round>() == 3);
  CHECK(first.run().quorum.self == "d1@0");
  CHECK(second.told<command::Round>() == 0);
  CHECK(coordinator::waiting_text(second.run()) ==
        "waiting for d1:1: the first round of a run begins at its first endpoint");
}

TEST_CASE(
    "Several endpoints: a node that is gone and had no round does not begin the run elsewhere") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0"}) second.says(node, second.join_of(node));
  second.says("a.0", request::Left{.why = "was lost (its agent was killed)"});
  second.now.mono += 1s;
  for (const char* node : {"c.0", "d.0"}) {
    second.says(node, second.join_of(node));
    CHECK(second.told<command::Round>() == 0);
  }
  CHECK(coordinator::waiting_text(second.run()) ==
        "waiting for d1:1: the first round of a run begins at its first endpoint");
}

TEST_CASE(
    "Several endpoints: where no node of the last round is left, it begins at the first again") {
  for (std::size_t number : {0, 1}) {
    Daemon daemon(number, "d" + std::to_string(number + 1) + "@1");
    daemon.says("x.0", daemon.join_of("x.0"));
    for (const char* node : {"a.0", "b.0", "c.0"})
      daemon.says(node, request::Left{.knows = kRound, .nodes = 3, .seen_of = "d1@0"});
    std::size_t rounds = 0;
    for (int i = 0; i < 100; ++i) {
      daemon.now.mono += 100ms;
      if (i == 0) daemon.says("z.0", daemon.join_of("z.0"));
      for (const char* node : {"x.0", "z.0"}) daemon.beats(node);
      daemon.on(runs::event::Tick{});
      rounds += daemon.told<command::Round>();
    }
    CHECK(rounds == (number == 0 ? 2 : 0));
  }
}

TEST_CASE("Several endpoints: who begins a run anew goes to the first when that is there") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) second.resumes(node, 0s, "d1@0", 3, Workers::Down);
  for (int i = 0; i < 100 && second.run().phase != coordinator::Phase::Running; ++i) {
    second.now.mono += 100ms;
    for (const char* node : {"a.0", "b.0", "c.0"}) second.beats(node);
    second.on(runs::event::Tick{});
  }
  REQUIRE(coordinator::last_formed(second.run()) == 6);
  for (const char* node : {"x.0", "y.0"}) second.says(node, second.join_of(node));
  const RoundId known{.number = 5, .by = "d2@0"};
  for (const char* node : {"a.0", "b.0", "c.0"})
    second.says(node, request::Left{.knows = known, .nodes = 3, .seen_of = "d2@0"});
  std::vector<request::Knock> knocks;
  for (int i = 0; i < 20 && knocks.empty(); ++i) {
    second.now.mono += 100ms;
    second.on(runs::event::Tick{});
    knocks = second.knocks;
  }
  REQUIRE(knocks.size() == 1);
  CHECK(knocks[0].begins);
  CHECK(knocks[0].formed == 0);  // what waits at the first endpoint is not to come here
  CHECK(second.run().phase == coordinator::Phase::Gathering);
}

TEST_CASE("Several endpoints: who waits for the first round goes to the first when that is there") {
  Daemon second(1, "d2@0");
  second.says("a.0", second.join_of("a.0"));
  REQUIRE(second.knocks.size() == 1);
  CHECK(second.knocks[0].begins);
  Daemon first(0, "d1@0");
  first.says("d2@0.knock", second.knocks[0]);
  REQUIRE(first.told<command::Moved>() == 1);
  second.on(runs::event::Answered{"job", std::get<command::Moved>(first.sent.front().command)});
  REQUIRE(second.told<command::Moved>() == 1);
  CHECK(std::get<command::Moved>(second.sent.front().command).to == kEndpoints[0]);
}

namespace {

// All three nodes are needed, and c does not reach the first endpoint.
struct OneIsStuck {
  Daemon first{0, "d1@0"};
  Daemon second{1, "d2@0"};

  request::Join join_of(const Daemon& daemon, const std::string& node, bool has_round) const {
    request::Join join = daemon.join_of(node);
    join.settings.min_nodes = 3;
    if (has_round) Daemon::comes_from(join, {.number = 0, .by = "d1@0"}, 3, 1s, "d1@0");
    return join;
  }
  void stuck_node_comes(bool has_round) {
    request::Join join = join_of(second, "c.1", has_round);
    join.unreached = 1;
    second.says("c.1", join);
  }
  // What the second ddpd has just said to the first is answered.
  void carry_knocks() {
    for (const request::Knock& knock : std::vector(second.knocks)) {
      first.says("d2@0.knock", knock);
      if (has_given_way()) return;
      for (const auto& send : std::vector(first.sent)) {
        const auto* moved = std::get_if<command::Moved>(&send.command);
        if (moved != nullptr) second.on(runs::event::Answered{"job", *moved});
      }
    }
  }
  bool has_given_way() const { return !first.state.runs.contains("job"); }
  // Until the first gives way, and for so long at most.
  Duration waits(Duration longest, bool has_round) {
    const MonoTime since = first.now.mono;
    while (!has_given_way() && first.now.mono < since + longest) {
      first.now.mono += 100ms;
      for (const char* node : {"a.0", "b.0"}) first.beats(node);
      first.on(runs::event::Tick{});
      second.now = first.now;
      if (!second.state.runs.contains("job")) {
        stuck_node_comes(has_round);
      } else {
        second.beats("c.1");
      }
      carry_knocks();
      if (has_given_way()) break;
      second.on(runs::event::Tick{});
      carry_knocks();
    }
    return first.now.mono - since;
  }
};

}  // namespace

TEST_CASE("Several endpoints: a run goes to where all are that it needs") {
  OneIsStuck run;
  Daemon& first = run.first;
  Daemon& second = run.second;
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, run.join_of(first, node, false));
  REQUIRE(first.told<command::Round>() == 3);
  for (int i = 0; i < 100 && first.run().phase == coordinator::Phase::Running; ++i) {
    first.now.mono += 100ms;
    for (const char* node : {"a.0", "b.0"})
      first.says(
          node, request::Heartbeat{.pulse = first.now.mono.time_since_epoch().count(), .round = 0});
    first.on(runs::event::Tick{});
  }
  REQUIRE(first.run().phase == coordinator::Phase::Stopping);
  for (const char* node : {"a.0", "b.0"})
    first.says(node, request::Ready{.round = 0, .store_port = 1001});
  REQUIRE(first.run().phase == coordinator::Phase::Gathering);
  second.now = first.now;
  SUBCASE("once they have waited") {
    Duration waited = run.waits(30s, true);
    CHECK(waited >= 10s);  // two leases
    CHECK(waited < 17s);   // c looks in between whether it gets to the first
    REQUIRE(first.told<command::Moved>() == 2);
    const auto& moved = std::get<command::Moved>(first.sent.front().command);
    CHECK(moved.to == kEndpoints[1]);
    CHECK(moved.why ==
          "the run goes to where 1 node waits that it needs and that does not reach this place");
    second.now = first.now;
    for (const char* node : {"a.1", "b.1"}) second.says(node, run.join_of(second, node, true));
    std::size_t rounds = 0;
    for (int i = 0; i < 100 && rounds == 0; ++i) {
      second.now.mono += 100ms;
      for (const char* node : {"a.1", "b.1", "c.1"}) {
        second.beats(node);
        rounds += second.told<command::Round>();
      }
      second.on(runs::event::Tick{});
      rounds += second.told<command::Round>();
    }
    CHECK(rounds == 3);
  }
  SUBCASE("not if these do not get there") {
    request::Join join = run.join_of(first, "a.1", true);
    join.unreached = 2;
    for (int i = 0; i < 5; ++i) {
      first.says("a." + std::to_string(i + 1), join);
      CHECK(run.waits(4s, true) >= 4s);
    }
  }
}

TEST_CASE("Several endpoints: who waits for the first round hears who cannot come") {
  OneIsStuck run;
  for (const char* node : {"a.0", "b.0"}) run.first.says(node, run.join_of(run.first, node, false));
  run.second.now = run.first.now;
  CHECK(run.waits(30s, false) >= 30s);
  CHECK(coordinator::waiting_text(run.first.run()) ==
        "waiting for nodes: 2 of 3 joined (a, b); 1 node waits at d2:2, and cannot connect to this "
        "place; the first round of a run begins at its first endpoint: name first in "
        "--rdzv-endpoint one that all nodes reach");
}

TEST_CASE("Several endpoints: a round that was stopped at another one does not go on") {
  Daemon first(0, "d1@0");
  first.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, first.join_of(node));
  REQUIRE(first.told<command::Round>() == 3);
  auto comes_back = [&](const std::string& node, Workers workers) {
    request::Join join = first.join_from(node, 100ms, "d2@0");
    join.next_round = 1;
    first.says(node, request::Resume{.join = join, .workers = workers, .failed = {}});
  };

  SUBCASE("nodes come back without workers") {
    comes_back("a.0", Workers::Down);
    CHECK(first.told<command::Stop>() == 3);
    comes_back("b.0", Workers::Down);
    first.says("c.0", request::Succeeded{.round = 0});
    CHECK(first.told<command::End>() == 0);
  }
  SUBCASE("a node is still stopping its workers when it comes back") {
    comes_back("a.0", Workers::Stopping);
    first.says("a.0", request::Ready{.round = 0, .store_port = 1});
    CHECK(first.told<command::Stop>() == 3);
    comes_back("b.0", Workers::Down);
  }
  SUBCASE("the workers of a node had succeeded") {
    first.says("a.0", request::Succeeded{.round = 0});
    first.says("b.0", request::Succeeded{.round = 0});
    comes_back("a.0", Workers::Down);
    CHECK(first.told<command::Stop>() == 3);
    comes_back("b.0", Workers::Down);
  }
  first.says("c.0", request::Ready{.round = 0, .store_port = 1});
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    first.now.mono += 10s;  // until the leases at d2 are over
    first.beats(node);
  }
  CHECK(first.run().up_count == 0);
}

TEST_CASE("Several endpoints: a ddpd that is alone stops its round however often nodes are heard") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0"}) second.resumes(node, 100ms, "d1@0", 4);
  std::size_t stops = 0;
  for (int i = 0; i < 60; ++i) {
    second.now.mono += 80ms;
    for (const char* node : {"a.0", "b.0"}) second.beats(node);
    second.on(runs::event::Tick{});
    stops += second.told<command::Stop>();
  }
  CHECK(stops == 2);
}

TEST_CASE("Several endpoints: a standby that comes last does not cost the nodes their round") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) second.resumes(node);
  request::Join standby = second.join_of("x.0");
  standby.is_back = true;
  second.says("x.0", standby);
  for (int i = 0; i < 100; ++i) {
    second.now.mono += 80ms;
    for (const char* node : {"a.0", "b.0", "c.0", "x.0"}) second.beats(node);
    second.on(runs::event::Tick{});
    REQUIRE(second.told<command::Stop>() == 0);
  }
  for (const char* node : {"a.0", "b.0", "c.0"}) second.says(node, request::Succeeded{.round = 4});
  CHECK(second.told<command::End>() == 4);
}

TEST_CASE("Several endpoints: a run that has succeeded ends when no one is awaited any more") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) second.resumes(node);
  for (const char* node : {"a.0", "b.0", "c.0"}) second.beats(node);
  request::Join standby = second.join_of("x.0");
  standby.is_back = true;
  standby.run_uuid = "other.0";  // of another start of the run
  second.says("x.0", standby);
  for (const char* node : {"a.0", "b.0", "c.0"}) second.says(node, request::Succeeded{.round = 4});
  std::size_t ends = 0;
  for (int i = 0; i < 100 && ends == 0; ++i) {
    second.now.mono += 80ms;
    for (const char* node : {"a.0", "b.0", "c.0", "x.0"}) second.beats(node);
    second.on(runs::event::Tick{});
    ends = second.told<command::End>();
  }
  CHECK(ends == 4);
}

TEST_CASE("Several endpoints: a ddpd that has forgotten its own round begins none beside it") {
  Daemon first(0, "d1@0");
  first.says("x.1", first.join_from("x.1", 1s));  // of a round of d1@0
  first.says("y.0", first.join_of("y.0"));
  for (int i = 0; i < 100; ++i) {
    first.now.mono += 100ms;
    for (const char* node : {"x.1", "y.0"}) first.beats(node);
    first.on(runs::event::Tick{});
    REQUIRE(first.told<command::Round>() == 0);
  }
}

namespace {

// Two nodes of round 0, of d1@0, of which b has not heard.  They have lost d1, and wait at d2.
struct HalfElsewhere {
  Daemon first{0, "d1@0"};
  Daemon second{1, "d2@0"};

  HalfElsewhere() {
    for (const char* node : {"a.0", "b.0"}) {
      request::Join join = first.join_of(node);
      join.address = "127.0.0.1";  // on one machine, so that they begin at once
      first.says(node, join);
    }
    first.says("a.0", request::Heartbeat{.round = 0});
    while (first.state.runs.contains("job")) {
      first.now.mono += 500ms;
      first.on(runs::event::Tick{});
    }
    second.now = first.now;
    come_to_second();
  }
  void come_to_second() {
    request::Join knows = second.join_of("a.1");
    Daemon::comes_from(knows, {.number = 0, .by = "d1@0"}, 2, 10s, "d1@0");
    second.says("a.1", knows);
    second.says("b.1", second.join_of("b.1"));
  }
  // What d2 says to d1 by its last event, and the answer.  True: the nodes are sent to d1.
  bool are_sent() {
    for (const request::Knock& knock : std::vector<request::Knock>(second.knocks)) {
      first.now = second.now;
      first.says("d2@0.knock", knock);
      if (first.told<command::Moved>() == 0) continue;
      second.on(runs::event::Answered{"job", std::get<command::Moved>(first.sent.front().command)});
      return second.told<command::Moved>() == 2;
    }
    return false;
  }
  // How long they wait there until then, or a quarter of an hour.
  Duration waits() {
    const MonoTime since = second.now.mono;
    while (second.now.mono < since + 15min) {
      second.now.mono += 100ms;
      second.on(runs::event::Tick{});
      if (are_sent()) break;
      second.beats("a.1");
      if (are_sent()) break;
      second.beats("b.1");
      if (are_sent()) break;
    }
    return second.now.mono - since;
  }
};

}  // namespace

TEST_CASE("Several endpoints: half of a round that waits elsewhere goes to who has formed it") {
  HalfElsewhere run;
  Duration waited = run.waits();
  CHECK(waited >= 10s);  // two leases
  CHECK(waited < 12s);
  Daemon& first = run.first;
  request::Join knows = first.join_of("a.1");
  Daemon::comes_from(knows, {.number = 0, .by = "d1@0"}, 2, 10s, "d1@0");
  first.says("a.1", knows);
  first.says("b.1", first.join_of("b.1"));
  for (int i = 0; i < 100 && first.run().phase != coordinator::Phase::Running; ++i) {
    first.now.mono += 100ms;
    for (const char* node : {"a.1", "b.1"}) first.beats(node);
    first.on(runs::event::Tick{});
  }
  CHECK(first.told<command::Round>() == 2);
}

TEST_CASE("Several endpoints: nodes that do not reach who has formed their round wait longer") {
  HalfElsewhere run;
  for (int i = 0; i < 4; ++i) {
    Duration waited = run.waits();
    CHECK(waited >= 10s * (1 << i));
    CHECK(waited < 12s * (1 << i));
    run.come_to_second();
  }
}

TEST_CASE(
    "Several endpoints: that a sign of life is waited for does not look like a lack of nodes") {
  Daemon second(1, "d2@1");
  const std::vector<std::string> nodes{"a.0", "b.0", "c.0"};
  for (const std::string& node : nodes) second.says(node, second.join_from(node, 1s));
  std::vector<std::string> waits;
  std::size_t rounds = 0;
  for (int i = 0; i < 100 && rounds == 0; ++i) {
    second.now.mono += 500ms;
    second.on(runs::event::Tick{});
    std::string text = coordinator::waiting_text(second.run());
    if (waits.empty() || waits.back() != text) waits.push_back(std::move(text));
    for (const std::string& node : nodes) {
      second.beats(node);
      rounds += second.told<command::Round>();
    }
  }
  CHECK(rounds == 3);
  CHECK(waits == std::vector<std::string>{
                     "waiting until the leases of workers that another host of the run may have "
                     "are over",
                     "all nodes that are needed are here (a, b, c); waiting for a further sign of "
                     "life of each"});
}
