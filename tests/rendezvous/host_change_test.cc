// SPDX-License-Identifier: BSD-3-Clause
//
// A run whose host is lost, or cut off from some of its nodes: scenarios in words, for the
// coordinators and for a member.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/decide/host_change.h"
#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/waiting_text.h"
#include "tests/rendezvous/one_member.h"
#include "tests/rendezvous/one_run.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

// A place where a run may be hosted.
struct Place : test::OneRun {
  std::string name;

  explicit Place(const std::string& name_, std::uint64_t order = 0) : name(name_) {
    on(runs::event::Begun{.files = {}, .name = name, .order = order});
  }
  bool is_one_machine = false;  // the nodes that come are on the host's
  request::Join join_of(const std::string& node) const {
    return {.host = node.substr(0, node.find('.')),
            .address = is_one_machine ? "127.0.0.1" : node,
            .settings = {.min_nodes = 1, .max_nodes = 3},
            .policy = {.last_call_timeout = 0s},
            .store_port = 1000,
            .stand_in_port = 2000,
            .is_host = name.starts_with(node.substr(0, node.find('.')) + "@")};
  }
  // A node of the round `round`, which saw its coordinator `age` ago.
  void joins_from(const std::string& node, const RoundId& round, Duration age,
                  const std::string& of = "a@0", int nodes = 3) {
    says(node, join_from(node, round, age, of, nodes));
    sees(node);
  }
  // The node has seen the present pulse of this coordinator, as soon after its join as can be.
  void sees(const std::string& node) { says(node, request::Heartbeat{.pulse = pulse()}); }
  request::Join join_from(const std::string& node, const RoundId& round, Duration age,
                          const std::string& of = "a@0", int nodes = 3) const {
    request::Join join = join_of(node);
    comes_from(join, round, nodes, age, of);
    return join;
  }
  // Its first round, of these nodes, which are as many as may be.
  void begins_with(const std::vector<std::string>& nodes) {
    for (const std::string& node : nodes) {
      request::Join join = join_of(node);
      join.policy.last_call_timeout = 1h;
      says(node, join);
    }
    REQUIRE(told<command::Round>() == nodes.size());
  }
  std::int64_t pulse() const { return now.mono.time_since_epoch().count(); }
  // Time passes; those who see the pulses say so.
  bool has_begun_after(Duration duration, const std::vector<std::string>& nodes) {
    bool has_begun = false;
    for (MonoTime end = now.mono + duration; now.mono < end;) {
      now.mono += 100ms;
      for (const std::string& node : nodes) {
        says(node, request::Heartbeat{.pulse = pulse()});
        has_begun = has_begun || told<command::Round>() > 0;
      }
      on(runs::event::Tick{});
      has_begun = has_begun || told<command::Round>() > 0;
    }
    return has_begun;
  }
};

const RoundId kRound{.number = 4, .by = "a@0"};

// A place whose process has found the run file of kRound, which had these nodes.
Place begun_anew(const std::string& name, const std::set<std::string>& nodes = {"a", "b", "c"}) {
  Place place(name);
  place.on(runs::event::Begun{.files = {{.run = "job",
                                         .run_uuid = "a.0",
                                         .round = kRound.number,
                                         .lease = 5s,
                                         .nodes = nodes,
                                         .by = kRound.by}},
                              .name = name});
  return place;
}

request::Left killed(const RoundId& knows, int nodes = 3) {
  return {.why = "was lost",
          .round = knows.number,
          .knows = knows,
          .nodes = nodes,
          .seen_of = knows.by};
}

// As a later agent of the machine says it.
Died died(const std::string& name, const RoundId& knew, int nodes) {
  return {.name = name, .knows = knew, .nodes = nodes, .seen_of = knew.by};
}

struct Seeker : test::OneMember {
  Seeker() {
    config = {
        .run = "job", .name = "c", .endpoint = "e:1", .node = {.host = "c"}, .stand_in_port = 7};
  }
  std::string connects_to() const {
    const auto* connect = wanted<member::action::Connect>();
    if (connect == nullptr) return "nowhere";
    std::string place = connect->place ? to_string(*connect->place) : "endpoint";
    return place + (connect->stand_in != 0 ? " as host" : "") +
           (connect->after > 0s ? " later" : "");
  }
  void fails() { on(member::event::ConnectFailed{.why = "refused", .is_refused = true}); }

  // Its stand-ins are b and this node.
  void hears_round() {
    on(member::event::Heard{command::Round{
        .number = 4,
        .run_uuid = "a.0",
        .ranks = {.group_rank = 2, .group_world_size = 3},
        .by = "a@0",
        .stand_ins = {{.name = "b", .at = {"b", 7}}, {.name = "c", .at = {"c", 7}}}}});
  }
  void joins(bool is_own_host) {
    on(member::event::RoundWanted{1000});
    on(member::event::Connected{
        .address = "10.0.0.3", .coordinator = "a@0", .is_own_host = is_own_host});
  }
};

// In a round.
struct RoundSeeker : Seeker {
  RoundSeeker() {
    joins(false);
    hears_round();
  }
};

}  // namespace

TEST_CASE(
    "Host change: a new host waits for the lease of the old one, and begins with the others") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 2s);
  place.joins_from("c.1", kRound, 1s);
  CHECK(place.told<command::Round>() == 0);
  CHECK_FALSE(place.has_begun_after(3900ms, {"b.1", "c.1"}));
  CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
  CHECK(place.run().round == 5);
}

TEST_CASE("Host change: the guardian's word of the old host spares the wait") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 100ms);
  place.joins_from("c.1", kRound, 100ms);
  place.says("a.0", killed(kRound));
  CHECK(place.told<command::Round>() == 2);
}

// So another one may have been told of the next round, and these not.
// It is told of the rounds that its own node is in, and may have formed one without it.
TEST_CASE("Host change: the last word of a stand-in does not say that it has formed no round") {
  for (bool is_word_first : {false, true}) {
    CAPTURE(is_word_first);
    Place place("c@2", 2);
    request::Left of_b = killed(kRound, 4);
    of_b.seen_of = "b@1";
    for (bool are_nodes : {!is_word_first, is_word_first}) {
      for (const std::string node : {"c", "d"}) {
        if (are_nodes)
          place.says(node + ".1", place.join_from(node + ".1", kRound, 10ms, "b@1", 4));
      }
      if (are_nodes) continue;
      place.says("a.0", killed(kRound, 4));
      place.says("b.0", of_b);
    }
    CHECK_FALSE(place.has_begun_after(7s, {"c.1", "d.1"}));  // its workers may live
    CHECK(place.has_begun_after(3s, {"c.1", "d.1"}));
  }
}

TEST_CASE("Host change: nodes whose host was in no round with them wait for its other nodes") {
  Place place("b@1", 1);
  const RoundId round{.number = 4, .by = "h@0"};
  place.joins_from("b.1", round, 100ms, "h@0", 2);
  SUBCASE("but for one that was in the round, and is gone") {
    place.says("h.0", killed(round, 2));
    CHECK(place.told<command::Round>() == 1);
    return;
  }
  SUBCASE("nothing is known of it") {}
  SUBCASE("its guardian's word names an earlier round") {
    place.says("h.0", killed({.number = 2, .by = "h@0"}));
  }
  place.joins_from("c.1", round, 100ms, "h@0", 2);
  CHECK(place.told<command::Round>() == 0);
  CHECK_FALSE(place.has_begun_after(7800ms, {"b.1", "c.1"}));
  CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
}

TEST_CASE("Host change: a host that is told to stop leaves the run to the others") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  place.on(runs::event::HostLeaves{"a was stopped", 15});
  CHECK(place.sent.empty());
  CHECK(runs::leaves_to_others(place.state));
  place.says("a.0", request::Leaving{.why = "was stopped", .signal = 15, .grace = 1s});
  CHECK(place.told<command::Stop>() == 2);
  place.says("d.0", place.join_of("d.0"));
  place.says("b.0", request::Ready{0, 1000});
  place.says("a.0", request::Left{});
  CHECK_FALSE(runs::is_idle(place.state));  // the workers of c have their grace
  place.says("c.0", request::Ready{0, 1000});
  CHECK(runs::is_idle(place.state));
  CHECK_FALSE(place.has_begun_after(60s, {"b.0", "c.0"}));
  CHECK(place.told<command::End>() == 0);
}

TEST_CASE("Host change: a host whose own run is over hands over the runs of others only") {
  Place place("h@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  SUBCASE("its own") {
    place.on(runs::event::HandOver{.own_run = "job", .why = "h has ended"});
    CHECK_FALSE(runs::leaves_to_others(place.state));
    CHECK(place.told<command::Stop>() == 0);
  }
  SUBCASE("another's") {
    place.on(runs::event::HandOver{.own_run = "own", .why = "h has ended"});
    CHECK(runs::leaves_to_others(place.state));
    CHECK(place.told<command::Stop>() == 3);
    CHECK_FALSE(runs::is_idle(place.state));
    place.on(runs::event::HandOver{.own_run = "own", .why = "h has ended"});
    CHECK(place.sent.empty());
    for (const char* node : {"a.0", "b.0", "c.0"}) place.says(node, request::Ready{0, 1000});
    CHECK(runs::is_idle(place.state));
    CHECK_FALSE(place.has_begun_after(60s, {"a.0", "b.0", "c.0"}));
  }
  CHECK(place.told<command::End>() == 0);
}

TEST_CASE("Host change: a run that only gathers its nodes stays where it is") {
  Place place("h@0");
  request::Join join = place.join_of("a.0");
  join.policy.last_call_timeout = 1h;
  place.says("a.0", join);
  place.on(runs::event::HandOver{.own_run = "own", .why = "h has ended"});
  CHECK_FALSE(runs::leaves_to_others(place.state));
}

TEST_CASE("Host change: a run is left to nobody where the other nodes are told to stop, too") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  auto has_successor = [&place] {
    return coordinator::has_successor(place.state.runs.begin()->second);
  };
  place.on(runs::event::HostLeaves{"a was stopped", 15});
  place.says("a.0", request::Leaving{.why = "was stopped", .signal = 15, .grace = 1s});
  place.says("b.0", request::Leaving{.why = "was stopped", .signal = 15, .grace = 1s});
  place.says("a.0", request::Left{});
  CHECK(has_successor());  // c
  place.says("c.0", request::Leaving{.why = "was stopped", .signal = 15, .grace = 1s});
  CHECK_FALSE(has_successor());
}

TEST_CASE(
    "Host change: a host without which too few are left ends the run when it is told to stop") {
  Place place("a@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    request::Join join = place.join_of(node);
    join.settings.min_nodes = 3;
    place.says(node, join);
  }
  REQUIRE(place.told<command::Round>() == 3);
  place.on(runs::event::HostLeaves{"a was stopped", 15});
  CHECK(place.told<command::End>() == 3);
  CHECK_FALSE(runs::leaves_to_others(place.state));
}

TEST_CASE("Host change: a round names those before it until enough nodes have heard of it") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 100ms);
  place.joins_from("c.1", kRound, 100ms);
  place.says("a.0", killed(kRound));
  REQUIRE(place.told<command::Round>() == 2);
  const std::vector<Unsettled> after{{.id = kRound, .nodes = 3, .was_in = true}};
  for (const auto& send : place.sent) {
    if (const auto* round = std::get_if<command::Round>(&send.command))
      CHECK(round->after == after);
  }
  place.says("b.1", request::Heartbeat{.pulse = place.pulse(), .round = 5});
  CHECK(place.told<command::Settled>() == 0);
  place.says("c.1", request::Heartbeat{.pulse = place.pulse(), .round = 5});
  CHECK(place.told<command::Settled>() == 2);
  place.says("c.1", request::Heartbeat{.pulse = place.pulse(), .round = 5});
  CHECK(place.told<command::Settled>() == 0);
}

TEST_CASE("Host change: a node that has not heard of its round helps to settle nothing") {
  Place place("b@1", 1);
  const std::vector<std::string> nodes = {"b.1", "c.1", "d.1"};
  for (const std::string& node : nodes) place.joins_from(node, kRound, 100ms, "a@0", 4);
  REQUIRE(place.has_begun_after(60s, nodes));
  for (const char* node : {"b.1", "c.1"})
    place.says(node, request::Heartbeat{.pulse = place.pulse(), .round = 5});
  place.says("c.1", request::Leaving{.why = "was stopped", .signal = 15, .grace = 1s});
  REQUIRE(place.run().phase == coordinator::Phase::Stopping);
  request::Join join = place.join_from("d.1", kRound, 100ms, "b@1", 4);
  place.says("d.1", request::Resume{.join = join, .workers = Workers::Down, .failed = {}});
  CHECK(place.told<command::Continue>() == 1);
  CHECK(place.told<command::Settled>() == 0);
}

TEST_CASE("Host change: a node says which rounds came before its own until that is settled") {
  RoundSeeker node;
  const std::vector<Unsettled> after{{.id = {.number = 3, .by = "b@1"}, .nodes = 4}};
  node.state.last->after = after;
  auto left = [&] {
    return std::get<request::Left>(member::last_message(node.state, node.config, "").request);
  };
  node.on(member::event::Heard{command::Settled{{.number = 4, .by = "b@1"}}});
  CHECK(left().after == after);
  node.on(member::event::Heard{command::Settled{{.number = 4, .by = "a@0"}}});
  CHECK(left().after.empty());
}

TEST_CASE("Host change: a node without the others does not go on, unless they are gone") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 100ms);
  place.says("a.0", killed(kRound));
  CHECK_FALSE(place.has_begun_after(20s, {"b.1"}));
  SUBCASE("as it is known of a node that had heard of no later round") {
    place.says("c.0", killed(kRound));
    CHECK(place.told<command::Round>() == 1);
  }
  SUBCASE("of a node that had, it says nothing") {
    place.says("c.0", killed({.number = 5, .by = "c@2"}));
    CHECK_FALSE(place.has_begun_after(20s, {"b.1"}));
  }
}

TEST_CASE("Host change: as few as the user has chosen go on, once the others may be dead") {
  Place place("b@1", 1);
  auto comes = [&](const std::string& node) {
    request::Join join = place.join_from(node, kRound, 0s, "a@0", 4);
    join.settings.max_nodes = 4;
    join.policy.quorum = 2;
    place.says(node, join);
  };
  comes("b.1");
  CHECK_FALSE(place.has_begun_after(20s, {"b.1"}));
  SUBCASE("of the last round") {
    comes("c.1");
    CHECK_FALSE(place.has_begun_after(7900ms, {"b.1", "c.1"}));
    CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
    CHECK(place.run().quorum.bodies.size() == 1);  // none before it counts
    CHECK(place.texts.contains(
        "the run goes on here without the other nodes of its last round, as quorum=2 in "
        "--rdzv-conf allows; if they were only cut off, they may go on, too, as a second run that "
        "saves to the same files"));
  }
  SUBCASE("and not of another one") {
    request::Join join = place.join_of("c.1");
    join.settings.max_nodes = 4;
    place.says("c.1", join);
    CHECK_FALSE(place.has_begun_after(20s, {"b.1", "c.1"}));
  }
  SUBCASE("that are heard") {
    comes("c.1");
    CHECK_FALSE(place.has_begun_after(20s, {"b.1"}));
  }
}

TEST_CASE(
    "Host change: a host that stood still is taken in when the next round may begin, not before") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 0s);
  place.joins_from("c.1", kRound, 0s);
  REQUIRE(place.has_begun_after(9s, {"b.1", "c.1"}));
  place.joins_from("a.1", kRound, 100ms);  // it saw its own pulse then, and may have had workers
  CHECK_FALSE(place.has_begun_after(4s, {"a.1", "b.1", "c.1"}));
  CHECK(place.run().phase == coordinator::Phase::Running);
  CHECK_FALSE(place.has_begun_after(5s, {"a.1", "b.1", "c.1"}));
  CHECK(place.run().phase == coordinator::Phase::Stopping);
  place.says("b.1", request::Ready{.round = 5});
  place.says("c.1", request::Ready{.round = 5});
  CHECK(place.told<command::Round>() == 3);
}

TEST_CASE("Host change: a node that was lost before it heard of the last round counts for it") {
  Place place("a@0");
  auto comes = [&](const std::string& node) {
    request::Join join = place.join_of(node);
    join.settings.max_nodes = 5;
    join.policy.last_call_timeout = 1h;
    join.policy.quorum = 2;
    join.is_back = node.ends_with(".1");
    place.says(node, join);
  };
  for (const char* node : {"a.0", "b.0", "c.0", "d.0", "e.0"}) comes(node);
  REQUIRE(place.told<command::Round>() == 5);
  place.says("b.0", request::Lost{});
  comes("b.1");
  CHECK_FALSE(place.has_begun_after(6s, {"a.0", "b.1"}));
  place.says("a.0", request::Ready{});
  CHECK(place.told<command::Round>() == 2);
}

TEST_CASE("Host change: nodes that were with other nodes of the round wait for these, too") {
  Place place("b@1", 1);
  for (const char* node : {"b.1", "c.1", "d.1"}) {
    request::Join join = place.join_of(node);
    join.settings.max_nodes = 5;
    join.previous_rank = node[0] - 'a';
    join.next_round = 5;
    join.round_by = "a@0";
    join.previous_nodes = 5;
    join.is_back = join.was_in_round = true;
    join.seen_age = 0s;
    join.seen_of = "a@0";
    place.says(node, join);
  }
  CHECK_FALSE(place.has_begun_after(7900ms, {"b.1", "c.1", "d.1"}));
  CHECK(place.has_begun_after(1200ms, {"b.1", "c.1", "d.1"}));
}

TEST_CASE("Host change: a round names the stand-ins, without the host") {
  Place place("a@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    auto each = place.join_of(node);
    each.settings.min_nodes = 3;
    place.says(node, each);
  }
  REQUIRE(place.told<command::Round>() == 3);
  const auto& round = std::get<command::Round>(place.sent.front().command);
  CHECK(round.by == "a@0");
  CHECK(round.stand_ins == std::vector<StandIn>{{.name = "b", .at = {"b.0", 2000}},
                                                {.name = "c", .at = {"c.0", 2000}}});
}

TEST_CASE("Host change: a host that too few nodes hear stops its round and lets nobody live") {
  Place place("a@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    auto join = place.join_of(node);
    join.settings.min_nodes = 3;
    place.says(node, join);
  }
  REQUIRE(place.told<command::Round>() == 3);
  CHECK_FALSE(place.has_begun_after(3s, {"a.0", "b.0"}));
  CHECK_FALSE(runs::is_alone(place.state, "job", place.now.mono));
  // Heartbeats that were under way for long show nothing.
  for (int i = 0; i < 26; ++i) {
    place.now.mono += 100ms;
    place.says("b.0", request::Heartbeat{.pulse = 1});
    place.on(runs::event::Tick{});
  }
  CHECK(runs::is_alone(place.state, "job", place.now.mono));
  CHECK(place.run().phase == coordinator::Phase::Stopping);
  CHECK(coordinator::waiting_text(place.run()) ==
        "waiting for a, b to stop the workers; too few of the nodes are heard here, and they may "
        "go on without this one");
  request::Resume resume{.join = place.join_of("c.0"), .workers = Workers::Up};
  resume.join.next_round = 1;
  place.says("c.0", resume);
  CHECK(place.told<command::Continue>() == 0);
}

// The others go on without it, and the workers here may have a long grace.
TEST_CASE("Host change: a host that is cut off renews no lease when it has ended the run, either") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  for (const char* node : {"a.0", "b.0", "c.0"})
    place.says(node, request::Heartbeat{.pulse = place.pulse(), .round = 0});
  place.says("a.0", request::Failed{.round = 0, .failure = {.status = {.exit_code = 1}}});
  REQUIRE(place.told<command::End>() == 3);
  auto only_a_is_heard_for = [&](int tenths) {
    for (int i = 0; i < tenths; ++i) {
      place.now.mono += 100ms;
      place.says("a.0", request::Heartbeat{.pulse = place.pulse(), .round = 0});
      place.on(runs::event::Tick{});
    }
  };
  SUBCASE("once it is alone") {
    only_a_is_heard_for(26);
    CHECK(runs::is_alone(place.state, "job", place.now.mono));
  }
  SUBCASE("but those who have left are no others") {
    place.says("b.0", request::Left{.knows = place.run().nodes.at("b.0").round->id(), .nodes = 3});
    place.says("c.0", request::Left{.knows = place.run().nodes.at("c.0").round->id(), .nodes = 3});
    only_a_is_heard_for(60);
    CHECK_FALSE(runs::is_alone(place.state, "job", place.now.mono));
  }
}

TEST_CASE("Host change: a host forms no round of nodes that it has not heard lately") {
  Place place("a@0");
  auto comes = [&](const std::string& node) {
    request::Join join = place.join_of(node);
    join.settings = {.min_nodes = 5, .max_nodes = 5};
    place.says(node, join);
  };
  for (const char* node : {"a.0", "b.0", "c.0", "d.0", "e.0"}) comes(node);
  REQUIRE(place.told<command::Round>() == 5);
  place.says("e.0", request::Left{});
  for (const char* node : {"a.0", "b.0", "c.0", "d.0"})
    place.says(node, request::Ready{.round = 0, .store_port = 1001});
  CHECK_FALSE(place.has_begun_after(3s, {"a.0"}));  // the others may have been cut off
  comes("x.0");
  CHECK(place.told<command::Round>() == 0);
  place.says("b.0", request::Heartbeat{.pulse = place.pulse()});
  CHECK(place.told<command::Round>() == 5);
}

TEST_CASE("Host change: the nodes hear who hosts the run now, and what became of who did") {
  const std::string id = "-01234567-89ab-4cde-8f01-23456789abcd";
  const RoundId round{.number = 4, .by = "node-a" + id + "@0"};
  Place place("node-b" + id + "@1", 1);
  auto comes = [&](const std::string& node, Duration age) {
    place.joins_from(node + id + ".1", round, age, round.by);
  };
  const std::string begin = "node-b hosts the run now; node-a, which did, ";
  SUBCASE("as its guardian said") {
    place.says("node-a" + id + ".0", killed(round));
    comes("node-b", 100ms);
    comes("node-c", 100ms);
    CHECK(place.texts.contains(begin + "was lost"));
  }
  SUBCASE("as an agent of its machine found: whether it was killed is not known") {
    place.joins_from("node-b" + id + ".1", round, 100ms, round.by, 4);
    request::Join join = place.join_from("node-c" + id + ".1", round, 100ms, round.by, 4);
    join.died = {died("node-a" + id, round, 4)};  // without it two of four are too few
    place.says("node-c" + id + ".1", join);
    CHECK(place.has_begun_after(9s, {"node-b" + id + ".1", "node-c" + id + ".1"}));
    CHECK(place.texts.contains(begin + "was lost (its agent has ended)"));
  }
  SUBCASE("if nobody knows") {
    comes("node-b", 1h);
    comes("node-c", 1h);
    CHECK(place.has_begun_after(9s, {"node-b" + id + ".1", "node-c" + id + ".1"}));
    CHECK(place.texts.contains(begin +
                               "was lost (nothing was heard of it until its lease was over)"));
  }
  SUBCASE("if it is here itself") {
    comes("node-b", 100ms);
    comes("node-a", 100ms);
    comes("node-c", 100ms);
    CHECK(place.texts.contains(begin + "was cut off, and has come back as a node"));
  }
}

TEST_CASE("Host change: the nodes hear that it is the leases of others that they wait for") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 0s);
  place.joins_from("c.1", kRound, 0s, "v@7");  // with another host since
  place.says("a.0", killed(kRound));
  CHECK_FALSE(place.has_begun_after(7s, {"b.1", "c.1"}));
  CHECK(std::ranges::any_of(place.texts, [](const std::string& text) {
    return text.starts_with(
        "waiting until the leases of workers that another host of the run may "
        "have are over, for about ");
  }));
  CHECK(place.has_begun_after(2s, {"b.1", "c.1"}));
}

TEST_CASE("Host change: of two hosts that wait the one that is tried first stays") {
  Place first("b@1", 1);
  Place second("c@2", 2);
  first.joins_from("b.1", kRound, 0s);
  second.joins_from("c.1", kRound, 0s);
  auto knock = runs::knock(second.state, "job", {"c", 7}, {"b", 7}, second.now.mono);
  REQUIRE(knock);
  CHECK_FALSE(knock->has_round);
  first.says("c.knock", *knock);
  REQUIRE(first.told<command::Moved>() == 1);
  second.on(runs::event::Answered{"job", std::get<command::Moved>(first.sent.front().command)});
  REQUIRE(second.told<command::Moved>() == 1);
  CHECK(std::get<command::Moved>(second.sent.front().command).to == Endpoint{"b", 7});
  CHECK_FALSE(second.state.runs.contains("job"));
}

// Its machine had lost the run file, so its nodes began at once.
TEST_CASE("Host change: a second start of a run ends when the first is heard to go on") {
  Place old("b@1", 1);
  old.joins_from("b.1", kRound, 0s);
  old.joins_from("c.1", kRound, 0s);
  old.says("a.0", killed(kRound));
  REQUIRE(old.told<command::Round>() == 2);
  Place fresh("x@0");
  fresh.now = old.now;
  fresh.begins_with({"x.0", "y.0", "z.0"});
  auto knock = runs::knock(old.state, "job", {"b", 7}, {"x", 7}, old.now.mono);
  REQUIRE(knock);
  SUBCASE("soon after it began") {
    fresh.says("b.knock", *knock);
    CHECK(fresh.told<command::End>() == 3);
    CHECK(fresh.run().verdict.exit_code == command::kExitRendezvous);
    CHECK(fresh.run().verdict.why.starts_with(
        "a run with this id was begun before and goes on at b:7"));
  }
  SUBCASE("not after it has long gone on beside it, but people are told") {
    CHECK_FALSE(fresh.has_begun_after(61s, {"x.0", "y.0", "z.0"}));
    fresh.says("b.knock", *knock);
    CHECK(fresh.told<command::End>() == 0);
    CHECK(fresh.told<command::Info>() == 3);
    fresh.says("b.knock", *knock);
    CHECK(fresh.told<command::Info>() == 0);
  }
  SUBCASE("nor for itself") {
    knock->run_uuid = fresh.run().run_uuid;
    fresh.says("b.knock", *knock);
    CHECK(fresh.sent.empty());
  }
}

// As it may be in a container that takes the place of the one which hosted.
TEST_CASE(
    "Host change: fewer than all nodes begin no run while workers of a host before may live") {
  Place fresh("x@0");
  auto comes = [&](const std::string& node, const std::string& address) {
    request::Join join = fresh.join_of(node);
    join.address = address;
    join.policy.last_call_timeout = 300ms;
    fresh.says(node, join);
  };
  const Policy policy;
  const Duration fence = policy.lease() + policy.silence_limit() * 3 / 5;
  SUBCASE("they wait for the end of its lease, or for all") {
    comes("x.0", "node-x");
    comes("y.0", "10.0.0.2");
    CHECK_FALSE(fresh.has_begun_after(fence - 200ms, {"x.0", "y.0"}));
    SUBCASE("that is over") {
      CHECK(fresh.has_begun_after(400ms, {"x.0", "y.0"}));
    }
    SUBCASE("all are there") {
      comes("z.0", "10.0.0.3");
      CHECK(fresh.told<command::Round>() == 3);
    }
    SUBCASE("its nodes have another host, which knocks") {
      Place old("b@1", 1);
      old.now = fresh.now;
      old.joins_from("b.1", kRound, 0s);
      old.joins_from("c.1", kRound, 0s);
      auto knock = runs::knock(old.state, "job", {"b", 7}, {"x", 7}, old.now.mono);
      REQUIRE(knock);
      fresh.says("b.knock", *knock);
      fresh.on(runs::event::Answered{"job", command::Moved{.to = {"b", 7}}});
      CHECK_FALSE(fresh.has_begun_after(1s, {"x.0", "y.0"}));
    }
  }
  SUBCASE("not where a registry lets one host begin only") {
    fresh.state.guarded_run = "job";
    comes("x.0", "node-x");
    CHECK(fresh.has_begun_after(400ms, {"x.0"}));
  }
  SUBCASE("not on one machine") {
    comes("x.0", "127.0.0.1");
    CHECK(fresh.has_begun_after(400ms, {"x.0"}));
  }
}

TEST_CASE("Host change: a host that waits gives way to one that has the run") {
  Place waiting("a@0");
  auto join = waiting.join_of("x.0");
  join.settings.min_nodes = 2;
  waiting.says("x.0", join);
  waiting.says("b.knock",
               request::Knock{.from = {"b", 7}, .to = {"e", 1}, .has_round = true, .order = 1});
  REQUIRE(waiting.told<command::Moved>() == 1);
  waiting.says("y.0", join);  // who comes later is sent on
  CHECK(waiting.told<command::Moved>() == 1);
  CHECK_FALSE(waiting.state.runs.contains("job"));
  waiting.now.mono += runs::kMovedAge;
  waiting.says("z.0", join);
  CHECK(waiting.state.runs.contains("job"));
}

TEST_CASE("Host change: a host begun anew forms no round without the nodes of its run file") {
  Place place = begun_anew("a@9");
  place.says("x.0", place.join_of("x.0"));
  CHECK_FALSE(place.has_begun_after(30s, {"x.0"}));
}

TEST_CASE("Host change: what a run file says holds until the run has ended here") {
  Place place = begun_anew("x@9");
  SUBCASE("when it has given way to another host") {
    place.says("x.0", place.join_of("x.0"));
    place.says("b.knock",
               request::Knock{.from = {"b", 7}, .to = {"x", 7}, .formed = 5, .order = 1});
    place.on(runs::event::Answered{"job", command::Moved{.to = {"b", 7}, .why = "x"}});
    REQUIRE(place.told<command::Moved>() == 1);
    place.now.mono += runs::kMovedAge;
  }
  SUBCASE("when no node has come for longer than a lease") {
    CHECK_FALSE(place.has_begun_after(10s, {}));
  }
  CHECK(place.dropped_files == 0);
  place.says("x.1", place.join_of("x.1"));
  CHECK_FALSE(place.has_begun_after(30s, {"x.1"}));
  CHECK(place.dropped_files == 0);
}

TEST_CASE("Host change: a host begun anew takes the guardian's word, whenever it comes") {
  Place place = begun_anew("b@9");
  SUBCASE("first") {
    place.says("a.0", killed(kRound));
    place.joins_from("b.1", kRound, 100ms);
    place.joins_from("c.1", kRound, 100ms);
  }
  SUBCASE("between") {
    place.joins_from("b.1", kRound, 100ms);
    place.says("a.0", killed(kRound));
    place.joins_from("c.1", kRound, 100ms);
  }
  SUBCASE("last") {
    place.joins_from("b.1", kRound, 100ms);
    place.joins_from("c.1", kRound, 100ms);
    place.says("a.0", killed(kRound));
  }
  CHECK(place.told<command::Round>() == 2);
}

TEST_CASE("Host change: an agent that is started again says that the one before left no worker") {
  Place place = begun_anew("a2@9", {"a", "b"});
  auto comes = [&](const std::string& left) {
    request::Join join = place.join_of("a2.0");
    join.died.push_back(died("a", kRound, 2));
    join.died.back().left = left;
    place.says("a2.0", join);
  };
  SUBCASE("before the others come") {
    comes("was lost (its agent was killed)");
    place.joins_from("b.1", kRound, 100ms, "a@0", 2);
    CHECK(place.told<command::Round>() == 2);
  }
  SUBCASE("after them") {
    place.joins_from("b.1", kRound, 100ms, "a@0", 2);
    comes("was lost (its agent was killed)");
    CHECK(place.told<command::Round>() == 2);
  }
  SUBCASE("and where it does not, they may live for as long as the lease") {
    comes("");
    place.joins_from("b.1", kRound, 100ms, "a@0", 2);
    CHECK_FALSE(place.has_begun_after(5s, {"a2.0", "b.1"}));
    CHECK(place.has_begun_after(10s, {"a2.0", "b.1"}));
  }
}

// As the host before has heard it, while a worker of its own saved for longer than it was given.
TEST_CASE("Host change: a run is begun anew without the nodes that its run file says have left") {
  RunFile file{.run = "job",
               .run_uuid = "a.0",
               .round = kRound.number,
               .lease = 5s,
               .nodes = {"a", "b", "c"},
               .by = kRound.by,
               .left = {"b", "c"}};
  SUBCASE("all but the one that was killed") {
    Place place("a2@9");
    place.on(runs::event::Begun{.files = {file}, .name = "a2@9"});
    request::Join join = place.join_of("a2.0");
    join.died.push_back(died("a", kRound, 3));
    SUBCASE("of which no worker lives") {
      join.died.back().left = "was lost (its agent was killed)";
      place.says("a2.0", join);
      CHECK(place.told<command::Round>() == 1);
    }
    SUBCASE("whose workers may live for as long as their lease") {
      place.says("a2.0", join);
      CHECK_FALSE(place.has_begun_after(4s, {"a2.0"}));
      CHECK(place.has_begun_after(10s, {"a2.0"}));
    }
  }
  SUBCASE("and not without one that has not") {
    file.left = {"b"};
    Place place("a2@9");
    place.on(runs::event::Begun{.files = {file}, .name = "a2@9"});
    request::Join join = place.join_of("a2.0");
    join.died.push_back(died("a", kRound, 3));
    join.died.back().left = "was lost (its agent was killed)";
    place.says("a2.0", join);
    CHECK_FALSE(place.has_begun_after(30s, {"a2.0"}));
    CHECK(place.told<command::Round>() == 0);
  }
}

TEST_CASE("Host change: the run file says who has left the last round") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  REQUIRE(place.kept_files.size() == 1);
  CHECK(place.kept_files[0].left.empty());
  const RoundId round = place.run().nodes.at("b.0").round->id();
  place.says("b.0", request::Leaving{.why = "was stopped by SIGTERM", .signal = 15, .grace = 30s});
  place.says("b.0", request::Left{.knows = round, .nodes = 3});
  REQUIRE_FALSE(place.kept_files.empty());
  const RunFile& file = place.kept_files[0];
  CHECK(file.nodes == std::set<std::string>{"a", "b", "c"});
  CHECK(file.left == std::set<std::string>{"b"});
  CHECK(decode_run_file(encode(file)).value().left == file.left);
}

TEST_CASE("Host change: an agent says later what has ended on its machine since it came") {
  Place place = begun_anew("a2@9", {"a", "b"});
  request::Join join = place.join_of("a2.0");
  place.says("a2.0", join);
  place.joins_from("b.1", kRound, 100ms, "a@0", 2);
  REQUIRE(place.told<command::Round>() == 0);
  std::vector<Died> news{died("a", kRound, 2)};
  place.says("a2.0", request::Heartbeat{.died = news});
  CHECK(place.told<command::Round>() == 0);  // its workers may live
  news.back().left = "was stopped by SIGTERM";
  place.says("a2.0", request::Heartbeat{.died = news});
  CHECK(place.told<command::Round>() == 2);
}

// It may not have heard of its round yet, and then starts workers when it does.
TEST_CASE("Host change: who has died on a machine says nothing of the workers that run there") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "c.0"});
  place.says("c.0", request::Leaving{.why = "was stopped by SIGTERM", .grace = 10s});
  REQUIRE(place.told<command::Stop>() == 2);
  place.says("c.0", request::Left{});
  place.says("a.0", request::Ready{.round = 0, .store_port = 1001});
  place.says("b.0", request::Heartbeat{.died = {{died("x", kRound, 3)}}});
  CHECK(place.told<command::Round>() == 0);
  place.says("b.0", request::Ready{.round = 0, .store_port = 1001});
  CHECK(place.told<command::Round>() == 2);
}

TEST_CASE("Host change: who waits for a rank says as well what has ended on its machine") {
  Place place = begun_anew("a2@9", {"a", "b"});
  request::Join join = place.join_of("a2.0");
  join.node_rank = 0;
  place.says("a2.0", join);
  request::Join contender = place.join_of("c.0");
  contender.node_rank = 0;
  place.says("c.0", contender);
  Died gone = died("a", kRound, 2);
  gone.left = "was stopped by SIGTERM";
  place.says("c.0", request::Heartbeat{.died = {{gone}}});
  place.says("a2.0", request::Left{});
  place.joins_from("b.1", kRound, 100ms, "a@0", 2);
  CHECK(place.told<command::Round>() == 2);
}

TEST_CASE("Host change: a node that waits looks again who has died on its machine") {
  Seeker node;
  node.joins(false);
  const std::vector<Died> none;
  node.on(member::event::DiedSeen{none});
  CHECK(node.actions.empty());
  const std::vector<Died> one{died("x", kRound, 2)};
  node.on(member::event::DiedSeen{one});
  const auto* news = node.wanted<member::action::Heartbeat>();
  REQUIRE(news != nullptr);
  CHECK(std::get<request::Heartbeat>(news->message.request).died == one);
  node.on(member::event::DiedSeen{one});
  CHECK(node.wanted<member::action::Heartbeat>() == nullptr);
  node.on(member::event::PulseSeen{"5"});
  node.now.mono += 1s;
  node.on(member::event::Tick{});
  const auto* next = node.wanted<member::action::Heartbeat>();
  REQUIRE(next != nullptr);
  CHECK_FALSE(std::get<request::Heartbeat>(next->message.request).died);  // it has been said
}

TEST_CASE("Host change: news of the dead wait for the answer to the question before") {
  Seeker node;
  node.joins(false);
  node.now.mono += 1s;
  node.on(member::event::Tick{});
  REQUIRE(node.wanted<member::action::Heartbeat>() != nullptr);
  const std::vector<Died> one{died("x", kRound, 2)};
  node.on(member::event::DiedSeen{one});
  CHECK(node.wanted<member::action::Heartbeat>() == nullptr);
  node.on(member::event::PulseSeen{"5"});
  const auto* news = node.wanted<member::action::Heartbeat>();
  REQUIRE(news != nullptr);
  CHECK(std::get<request::Heartbeat>(news->message.request).died == one);
}

TEST_CASE("Host change: a run that was stopped as a whole begins anew at once") {
  Place place = begun_anew("a2@9");
  for (const std::string node : {"a", "b", "c"}) {
    request::Join join = place.join_of(node + "2.0");
    join.died.push_back(died(node, kRound, 3));
    join.died.back().left = "was stopped by SIGTERM";
    place.says(node + "2.0", join);
  }
  CHECK(place.told<command::Round>() == 3);
}

TEST_CASE("Host change: what another run of this id left on a machine keeps none from beginning") {
  Place place("x@0");
  SUBCASE("nothing else is heard of it") {}
  SUBCASE("a last word of it comes late") {
    place.says("c.0", killed(kRound));
  }
  for (const std::string node : {"a", "b", "c"}) {
    request::Join join = place.join_of(node + "2.0");
    join.settings.min_nodes = 3;
    join.died.push_back(died(node, kRound, 3));
    join.died.back().left = "was stopped by SIGTERM";
    place.says(node + "2.0", join);
  }
  bool is_at_once = place.told<command::Round>() == 3;
  CHECK((is_at_once || place.has_begun_after(9s, {"a2.0", "b2.0", "c2.0"})));
}

TEST_CASE("Host change: the last word of a node of an earlier start holds up no later one") {
  Place place("x@0");
  auto come = [&](const char* node) {
    request::Join join = place.join_of(node);
    join.settings.min_nodes = 3;
    join.policy.max_restarts = 1;
    place.says(node, join);
  };
  for (const char* node : {"a2.0", "b2.0", "c2.0"}) come(node);
  REQUIRE(place.told<command::Round>() == 3);
  place.says("c.0", killed(kRound));
  place.says("b2.0", request::Failed{.round = place.run().round,
                                     .failure = {.rank = 1, .status = {.exit_code = 1}}});
  for (const char* node : {"a2.0", "b2.0", "c2.0"})
    place.says(node, request::Ready{.round = place.run().round, .store_port = 1});
  CHECK(place.told<command::Round>() == 3);
}

TEST_CASE("Host change: a run that was killed as a whole begins anew on its machines") {
  Place place = begun_anew("a2@9");
  auto comes = [&](const std::string& node, const std::string& before, const RoundId& knew = kRound,
                   int nodes = 3) {
    request::Join join = place.join_of(node);
    join.died.push_back(died(before, knew, nodes));
    place.says(node, join);
  };
  const std::vector<std::string> all{"a2.0", "b2.0", "c2.0"};
  SUBCASE("on all of them") {
    comes("a2.0", "a");
    comes("b2.0", "b");
    CHECK_FALSE(place.has_begun_after(30s, {"a2.0", "b2.0"}));
    comes("c2.0", "c");
    CHECK(place.told<command::Round>() == 3);  // the host that they saw has been gone for long
    // And nothing of the last start is waited for any more.
    CHECK_FALSE(place.has_begun_after(20s, all));
    CHECK(place.run().phase == coordinator::Phase::Running);
    CHECK_FALSE(runs::is_alone(place.state, "job", place.now.mono));
  }
  SUBCASE("after another one of its nodes had hosted it") {
    const RoundId later{.number = 6, .by = "b@1"};
    comes("a2.0", "a");
    comes("b2.0", "b", later, 2);
    comes("c2.0", "c", later, 2);
    CHECK(place.has_begun_after(20s, all));
  }
  SUBCASE("not while one of those that went on elsewhere may live") {
    const RoundId later{.number = 6, .by = "b@1"};
    comes("a2.0", "a");
    comes("b2.0", "b", later);  // with c and another one
    comes("c2.0", "c", later);
    CHECK_FALSE(place.has_begun_after(30s, all));
  }
  SUBCASE("not on others, whatever they are called") {
    comes("a2.0", "a");
    comes("b2.0", "b");
    request::Join join = place.join_of("c2.0");
    join.host = "c";
    place.says("c2.0", join);
    CHECK_FALSE(place.has_begun_after(30s, all));
  }
  SUBCASE("each counts once") {
    comes("a2.0", "a");
    comes("b2.0", "b");
    comes("c2.0", "b");
    CHECK_FALSE(place.has_begun_after(30s, all));
  }
}

TEST_CASE("Host change: rounds of two starts at one coordinator have names of their own") {
  Place place("a@0");
  place.is_one_machine = true;
  place.says("a.0", place.join_of("a.0"));
  CHECK(place.run().round == 0);
  auto begins_anew = [&] {
    CHECK(place.told<command::Round>() == 1);
    CHECK(place.run().run_uuid == "b.0");
    CHECK(place.run().round == 1);
  };
  SUBCASE("the second one waits for the end of the first") {
    place.says("a.0", request::Succeeded{0});
    place.says("b.0", place.join_of("b.0"));
    place.says("a.0", request::Left{});
    begins_anew();
  }
  SUBCASE("the second one comes after it") {
    place.says("a.0", request::Succeeded{0});
    place.says("a.0", request::Left{});
    place.says("b.0", place.join_of("b.0"));
    begins_anew();
  }
  SUBCASE("the first has lost all its nodes") {
    place.says("a.0", request::Left{.why = "was stopped", .round = 0});
    place.says("b.0", place.join_of("b.0"));
    begins_anew();
  }
}

TEST_CASE("Host change: an agent speaks for one that was killed on its machine") {
  Place place("a@0");
  auto comes = [&](const std::string& node, std::vector<Died> dead = {}) {
    request::Join join = place.join_of(node);
    join.settings = {.min_nodes = 3, .max_nodes = 3};
    join.died = std::move(dead);
    place.says(node, join);
  };
  for (const char* node : {"a.0", "b.0", "c.0"}) comes(node);
  REQUIRE(place.told<command::Round>() == 3);
  REQUIRE_FALSE(place.has_begun_after(12s, {"a.0"}));  // none of the others is heard any more
  place.says("a.0", request::Ready{.round = 0, .store_port = 1001});
  const RoundId own{.number = 0, .by = "a@0"};
  const std::vector<std::string> here{"a.0", "x.0", "y.0"};
  SUBCASE("that knew no later round") {
    comes("x.0", {died("b", own, 3)});
    comes("y.0");
    CHECK(place.told<command::Round>() == 3);  // 2 + 1 >= 3
  }
  SUBCASE("not for one that had gone on with others") {
    const RoundId later{.number = 1, .by = "b@0"};
    comes("x.0", {died("b", later, 2)});
    comes("y.0", {died("c", later, 2)});
    CHECK_FALSE(place.has_begun_after(20s, here));
  }
  SUBCASE("not where it comes from another machine of that name") {
    for (const char* node : {"x.0", "y.0"}) {
      request::Join join = place.join_of(node);
      join.settings = {.min_nodes = 3, .max_nodes = 3};
      join.host = node == here[1] ? "b" : "c";
      place.says(node, join);
    }
    CHECK_FALSE(place.has_begun_after(20s, here));
  }
}

TEST_CASE("Host change: one that died may have been with another host until then") {
  Place place("c@1", 1);
  place.joins_from("c.1", kRound, 1h);
  request::Join join = place.join_of("x.0");
  join.died = {died("a", kRound, 3), died("b", kRound, 3)};
  SUBCASE("so that host's leases are waited for") {
    join.died[1].seen_of = "v@7";
    place.says("x.0", join);
    CHECK_FALSE(place.has_begun_after(7900ms, {"c.1", "x.0"}));
    CHECK(place.has_begun_after(1200ms, {"c.1", "x.0"}));
  }
  SUBCASE("as well as those of one that has died meanwhile") {
    place.says("x.0", join);
    CHECK_FALSE(place.has_begun_after(7900ms, {"c.1", "x.0"}));
    CHECK(place.has_begun_after(1200ms, {"c.1", "x.0"}));
  }
}

TEST_CASE("Host change: an agent that died is not yet gone while its node is here") {
  Place place("a@0");
  auto comes = [&](const std::string& node, std::vector<Died> dead = {}) {
    request::Join join = place.join_of(node);
    join.settings = {.min_nodes = 2, .max_nodes = 2};
    join.died = std::move(dead);
    place.says(node, join);
  };
  comes("a.0");
  comes("b.0");
  REQUIRE(place.told<command::Round>() == 2);
  comes("x.0", {died("b", {.number = 0, .by = "a@0"}, 2)});
  place.says("a.0", request::Failed{.round = 0, .is_final = true});
  CHECK_FALSE(place.run().quorum.gone.contains("b"));  // its workers may live
}

TEST_CASE("Host change: what is left of a run of the same id says nothing of this one") {
  Place place("a@0");
  place.is_one_machine = true;
  request::Join join = place.join_of("a.0");
  join.settings.min_nodes = 2;
  join.died.push_back(died("q", {.number = 9, .by = "z@7"}, 5));
  place.says("a.0", join);
  join = place.join_of("b.0");
  join.settings.min_nodes = 2;
  place.says("b.0", join);
  CHECK(place.told<command::Round>() == 2);  // at once
}

TEST_CASE("Host change: the lease stays what other hosts know it to be") {
  Place place("a@0");
  place.is_one_machine = true;
  request::Join join = place.join_of("a.0");
  join.settings.min_nodes = 2;
  place.says("a.0", join);
  place.state.runs.at("job").lost_rounds = 5;
  join.host = "b";
  join.is_host = false;
  place.says("b.0", join);
  CHECK(place.told<command::Round>() == 2);
  CHECK(place.told<command::KeepAlive>() == 0);
  CHECK(place.run().policy.silence_limit() == join.policy.silence_limit());
}

TEST_CASE("Host change: a node that is not in the round hears of the stand-ins, of each round") {
  Place place("a@0");
  for (const char* node : {"a.0", "b.0", "c.0", "d.0"}) {
    auto each = place.join_of(node);
    each.settings.min_nodes = 3;
    each.policy.max_restarts = 1;
    place.says(node, each);
  }
  REQUIRE(place.told<command::Standby>() == 1);
  auto heard_by_d = [&] {
    std::vector<std::string> names;
    for (const auto& each : place.sent) {
      const auto* told = std::get_if<command::StandIns>(&each.command);
      if (each.node != "d.0" || told == nullptr) continue;
      names.clear();
      CHECK(told->run_uuid == "a.0");
      for (const StandIn& stand_in : told->stand_ins) names.push_back(stand_in.name);
    }
    place.sent.clear();
    return names;
  };
  CHECK(heard_by_d() == std::vector<std::string>{"b", "c"});
  place.says("b.0",
             request::Failed{.round = 0, .failure = {.rank = 1, .status = {.exit_code = 1}}});
  for (const char* node : {"a.0", "b.0", "c.0"})
    place.says(node, request::Ready{.round = 0, .store_port = 1});
  CHECK(heard_by_d() == std::vector<std::string>{"b", "c"});
}

TEST_CASE("Host change: who came while the host ended comes to the next one as if it had not") {
  Seeker node;
  node.joins(false);
  node.on(member::event::PulseSeen{"6"});
  node.on(member::event::Heard{command::Standby{.why = "a ends", .is_outside = true}});
  CHECK(node.wanted<member::action::Post>() == nullptr);
  node.now.mono += 3s;
  node.on(member::event::Tick{});
  CHECK(node.wanted<member::action::Heartbeat>() != nullptr);
  SUBCASE("and closes the connection at the end") {
    node.on(member::event::PulseSeen{"7"});  // that is nothing to it
    node.on(member::event::ConnectionLost{"closed"});
  }
  SUBCASE("and was lost without a word") {
    for (int i = 0; i < 3 && node.connects_to() == "nowhere"; ++i) {
      node.now.mono += 1s;
      node.on(member::event::Tick{});
    }
  }
  CHECK(node.connects_to() == "endpoint");
  node.on(member::event::Connected{.address = "10.0.0.3", .coordinator = "b@0"});
  const auto* post = node.wanted<member::action::Post>();
  REQUIRE(post != nullptr);
  const auto* join = std::get_if<request::Join>(&post->message.request);
  REQUIRE(join != nullptr);
  CHECK_FALSE(join->is_back);
  CHECK_FALSE(join->seen_age.has_value());
  CHECK(join->seen_of == "");
}

TEST_CASE("Host change: a standby goes to the stand-ins when the host is gone") {
  Seeker node;
  node.joins(false);
  node.on(member::event::Heard{command::Standby{"there are enough"}});
  node.on(member::event::Heard{command::StandIns{{{.name = "b", .at = {"b", 7}}}}});
  node.on(member::event::ConnectionLost{"reset"});
  CHECK(node.connects_to() == "endpoint");
  node.fails();
  CHECK(node.connects_to() == "endpoint");
  node.fails();
  CHECK(node.connects_to() == "b:7");
  node.on(member::event::Connected{.address = "10.0.0.3", .coordinator = "b@1"});
  REQUIRE(node.wanted<member::action::Post>() != nullptr);
  SUBCASE("and back to where it was, if it is not the host that was lost") {
    node.on(member::event::Heard{command::StandIns{{{.name = "d", .at = {"d", 7}}}}});
    node.on(member::event::ConnectionLost{"reset"});
    CHECK(node.connects_to() == "b:7");
    node.fails();
    CHECK(node.connects_to() == "endpoint");
    node.fails();
    CHECK(node.connects_to() == "b:7");
    node.fails();
    CHECK(node.connects_to() == "d:7");
  }
}

TEST_CASE("Host change: a node that is sent to and fro says so once") {
  Seeker node;
  int said = 0;
  for (int i = 0; i < 5; ++i) {
    node.joins(false);
    node.on(
        member::event::Heard{command::Moved{.to = {"b", 7}, .why = "the run has another host"}});
    for (const auto& action : node.actions)
      said += std::holds_alternative<member::action::NotifyUser>(action) ? 1 : 0;
    CHECK(node.connects_to().starts_with("b:7"));
    node.now.mono += 1s;
    node.fails();
    CHECK(node.connects_to().starts_with("endpoint"));
  }
  CHECK(said == 2);  // that it goes there, and that it comes back from there
}

TEST_CASE("Host change: a node that is sent where it gets to nobody does not go on for ever") {
  Seeker node;
  node.config.read_timeout = 12s;
  int times = 0;
  for (; times < 100 && !node.state.is_over; ++times) {
    node.joins(false);
    node.on(member::event::Heard{command::StandIns{}});  // the coordinator here lives
    node.on(
        member::event::Heard{command::Moved{.to = {"b", 7}, .why = "the run has another host"}});
    node.now.mono += 1s;
    if (!node.state.is_over) node.fails();
  }
  CHECK(times == 14);
  const auto* failure = node.wanted<member::action::NotifyFailure>();
  REQUIRE(failure != nullptr);
  CHECK(
      failure->why.starts_with("the run has another host, at b:7, which this node cannot reach ("));
}

TEST_CASE("Host change: a node tries the stand-ins in order, and hosts in its turn") {
  RoundSeeker node;
  node.on(member::event::ConnectionLost{"reset"});
  CHECK(node.connects_to() == "endpoint");
  node.fails();  // the agent there is gone
  CHECK(node.wanted<member::action::NotifyStop>() != nullptr);
  CHECK(node.connects_to() == "endpoint");
  node.fails();
  CHECK(node.connects_to() == "b:7");
  node.fails();
  CHECK(node.connects_to() == "endpoint later");
  node.now.mono += 1s;
  node.fails();
  CHECK(node.connects_to() == "b:7");
  node.fails();
  CHECK(node.connects_to() == "c:7 as host");
}

TEST_CASE("Host change: a node that ends without a connection tells the others where they may be") {
  RoundSeeker node;
  CHECK_FALSE(member::unsaid_left(node.state, node.config, node.now.mono));
  SUBCASE("after its own rendezvous has failed") {
    node.state.is_own_host = true;
    node.on(member::event::HostFailed{"it broke"});
  }
  SUBCASE("while it looks for the host") {
    node.on(member::event::ConnectionLost{"reset"});
    node.on(member::event::Leaving{.why = "was stopped", .signal = 15});
  }
  SUBCASE("when it has not found the host") {
    node.on(member::event::ConnectionLost{"reset"});
    node.fails();
    node.now.mono += 1h;
    node.fails();
    REQUIRE(node.state.is_over);
  }
  auto unsaid = member::unsaid_left(node.state, node.config, node.now.mono);
  REQUIRE(unsaid);
  CHECK(std::get<request::Left>(unsaid->message.request).knows ==
        RoundId{.number = 4, .by = "a@0"});
  CHECK(unsaid->places == std::vector<std::optional<Endpoint>>{std::nullopt, Endpoint{"b", 7}});
}

TEST_CASE("Host change: a node has nothing to say at its end if the run is over") {
  RoundSeeker node;
  node.on(member::event::Heard{command::End{}});
  node.on(member::event::ConnectionLost{"reset"});
  CHECK_FALSE(member::unsaid_left(node.state, node.config, node.now.mono));
}

TEST_CASE("Host change: a join says when another host was seen last") {
  RoundSeeker node;
  node.now.mono += 1s;
  node.on(member::event::Tick{});  // it looks
  node.on(member::event::PulseSeen{"6"});
  node.now.mono += 3s;
  node.on(member::event::ConnectionLost{"reset"});
  node.fails();
  node.on(member::event::RoundWanted{1001});
  node.on(member::event::Connected{.address = "10.0.0.3", .coordinator = "b@1"});
  const auto* post = node.wanted<member::action::Post>();
  REQUIRE(post != nullptr);
  const auto& join = std::get<request::Join>(post->message.request);
  CHECK(join.seen_age == 3s);
  CHECK(join.seen_of == "a@0");
  CHECK(join.round_by == "a@0");
  CHECK(join.stand_in_port == 7);
  SUBCASE("and it is as it was when that host has gone without a round") {
    node.now.mono += 1s;
    node.on(member::event::Heard{command::Moved{.to = {"b", 7}}});
    CHECK(node.connects_to() == "b:7");
    node.on(member::event::Connected{.address = "10.0.0.3", .coordinator = "b@2"});
    const auto* again = node.wanted<member::action::Post>();
    REQUIRE(again != nullptr);
    CHECK(std::get<request::Join>(again->message.request).seen_age == 4s);
  }
}

TEST_CASE("Host change: a pulse of a host that is alone renews no lease, but is confirmed") {
  RoundSeeker node;
  node.on(member::event::Tick{});  // it looks
  MonoTime end = node.state.lease_end;
  node.now.mono += 100ms;
  node.on(member::event::PulseSeen{"77 alone"});
  CHECK(node.state.lease_end == end);
  // It may know better soon.
  CHECK(member::next_tick(node.state, node.config) <= node.now.mono + 125ms);
  node.now.mono += 1s;
  node.on(member::event::Tick{});
  const auto* beat = node.wanted<member::action::Heartbeat>();
  REQUIRE(beat != nullptr);
  CHECK(std::get<request::Heartbeat>(beat->message.request).pulse == 77);
  node.on(member::event::PulseSeen{"78"});
  CHECK(node.state.lease_end > end);
}

TEST_CASE("Host change: the workers of the hosting node live as long as others are heard") {
  RoundSeeker node;
  node.state.is_own_host = true;
  MonoTime heard_at = node.now.mono + 1s;
  node.now.mono += 2s;
  node.on(member::event::Tick{heard_at});
  CHECK(node.state.lease_end == heard_at + member::lease(node.state, node.config));
  // That was a second old when it came: half the silence limit counts from then.
  node.now.mono = heard_at + 3499ms;
  node.on(member::event::Tick{heard_at});
  CHECK(node.wanted<member::action::NotifyStop>() == nullptr);
  node.now.mono = heard_at + 3500ms;
  node.on(member::event::Tick{heard_at});
  const auto* stop = node.wanted<member::action::NotifyStop>();
  REQUIRE(stop != nullptr);
  CHECK(stop->kill_by == heard_at + member::lease(node.state, node.config));
  CHECK(stop->stop.why ==
        "this node, which hosts the run, has heard too few of the others for 3.5 s, "
        "and they may go on without it");
}

TEST_CASE("Host change: however late the others confirm it, the host's workers have time to end") {
  RoundSeeker node;
  node.state.is_own_host = true;
  MonoTime heard_at = node.now.mono;
  node.now.mono += 2400ms;
  node.on(member::event::Tick{heard_at + 1ms});
  node.now.mono = heard_at + 3500ms;
  node.on(member::event::Tick{heard_at + 1ms});
  CHECK(node.wanted<member::action::NotifyStop>() == nullptr);
  node.now.mono = heard_at + 3501ms;
  node.on(member::event::Tick{heard_at + 1ms});
  REQUIRE(node.wanted<member::action::NotifyStop>() != nullptr);
  CHECK(*node.wanted<member::action::NotifyStop>()->kill_by - node.now.mono >= 500ms);
}

TEST_CASE("Host change: heartbeats do not put off the look at which a round is stopped") {
  coordinator::State state;
  state.phase = coordinator::Phase::Running;
  state.quorum.bodies.emplace_back();
  const MonoTime now = MonoTime(1h);
  state.contacts.next_look = now + 10ms;
  coordinator::look_at_contacts(state, now);
  CHECK(state.contacts.next_look == now + 10ms);
  state.contacts.next_look = MonoTime::max();
  coordinator::look_at_contacts(state, now);
  CHECK(state.contacts.next_look == now + state.policy.silence_limit() / 20);
}

// Its guardian holds the workers, and would end them at the end of a lease that is over.
TEST_CASE("Host change: what a host heard before a standstill moves no lease after it") {
  RoundSeeker node;
  node.state.is_own_host = true;
  MonoTime heard_at = node.now.mono;
  node.on(member::event::Tick{heard_at});
  MonoTime end = node.state.lease_end;
  node.now.mono += 12s;
  node.on(member::event::Tick{heard_at});
  REQUIRE(node.state.asks_since);
  node.now.mono += 100ms;
  node.on(member::event::Tick{heard_at + 800ms});  // that was under way meanwhile
  CHECK(node.wanted<member::action::RenewLease>() == nullptr);
  CHECK(node.state.lease_end == end);
  node.now.mono += 100ms;
  node.on(member::event::Tick{node.now.mono - 50ms});
  CHECK(node.state.lease_end > node.now.mono);
}

// It hears itself at once when it goes on, and that is enough for half of two nodes.
TEST_CASE(
    "Host change: a worker that the guardian ended while its host stood still has not failed") {
  RoundSeeker node;
  node.state.is_own_host = true;
  node.on(member::event::Tick{node.now.mono});
  node.now.mono += 7s;
  node.on(member::event::Tick{node.now.mono});
  node.on(member::event::WorkerFailed{.failure = {.status = {.signal = SIGKILL}}});
  CHECK(node.wanted<member::action::Post>() == nullptr);
  const auto* stop = node.wanted<member::action::NotifyStop>();
  REQUIRE(stop != nullptr);
  CHECK(stop->stop.why == "this node stood still past the end of its lease");
}

TEST_CASE("Host change: a host looks for other hosts of its run") {
  RoundSeeker node;
  node.state.is_own_host = true;
  node.state.place = Endpoint{"c", 7};
  node.now.mono += 1s;
  node.on(member::event::Tick{node.now.mono});
  const auto* knock = node.wanted<member::action::Knock>();
  REQUIRE(knock != nullptr);
  CHECK(knock->places.size() == 1);  // with a round, at the endpoint only
  node.on(member::event::Heard{command::Stop{.round = 4, .why = "x"}});
  node.on(member::event::RoundWanted{1001});
  node.now.mono += 1s;
  node.on(member::event::Tick{node.now.mono});
  knock = node.wanted<member::action::Knock>();
  REQUIRE(knock != nullptr);
  CHECK(knock->places.size() == 2);
}

// b and c have lost a long ago, with which v went on: half of the round is enough for its host.
TEST_CASE("Host change: a node that is gone may have been with the other host until then") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 1h, "a@0", 4);
  place.joins_from("c.1", kRound, 1h, "a@0", 4);
  SUBCASE("as far as its guardian knows") {
    place.says("v.0", killed(kRound, 4));
    CHECK_FALSE(place.has_begun_after(4900ms, {"b.1", "c.1"}));
    CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
  }
  SUBCASE("unless it says itself that this was long ago") {
    request::Left left = killed(kRound, 4);
    left.seen_age = 1h;
    place.says("v.0", left);
    CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
  }
}

// a hosted round 4, then b round 5; when b was killed too, c and d are enough.
TEST_CASE("Host change: the host before the last one may be known to be gone at any time") {
  const RoundId last{.number = 5, .by = "b@1"};
  Place place("c@2", 2);
  auto comes = [&](const std::string& node, std::vector<Died> dead = {}) {
    request::Join join = place.join_from(node, last, 100ms, "b@1");
    join.settings.max_nodes = 4;
    join.policy.max_restarts = 1;
    join.after = {{.id = kRound, .nodes = 4, .was_in = true}};
    join.died = std::move(dead);
    place.says(node, join);
  };
  request::Left left = killed(last);
  left.after = {{.id = kRound, .nodes = 4, .was_in = true}};
  comes("c.1");
  place.says("b.0", left);
  bool has_died_here = false;
  SUBCASE("by the file on its machine") {
    has_died_here = true;
  }
  SUBCASE("by its guardian") {}
  comes("d.1", has_died_here ? std::vector{died("a", kRound, 4)} : std::vector<Died>{});
  if (!has_died_here) {
    SUBCASE("before the next round") {
      place.says("a.0", killed(kRound, 4));
    }
    SUBCASE("after it") {}
  }
  CHECK(place.told<command::Round>() == 0);
  CHECK(place.has_begun_after(200ms, {"c.1", "d.1"}));
  place.says("a.0", killed(kRound, 4));
  place.says("c.1", request::Failed{.round = 6});
  place.says("c.1", request::Ready{.round = 6, .store_port = 1001});
  place.says("d.1", request::Ready{.round = 6, .store_port = 1001});
  CHECK(place.told<command::Round>() == 2);
}

// Of five nodes, a hosts; x is silent, and c, d and e are enough without the others.
TEST_CASE("Host change: a late word of the host puts no lease of others off") {
  const std::vector<std::string> nodes{"c.1", "d.1", "e.1"};
  Place place("c@2", 2);
  for (const std::string& node : nodes) place.joins_from(node, kRound, 100ms, "a@0", 5);
  CHECK_FALSE(place.has_begun_after(6s, nodes));
  SUBCASE("which was killed") {
    place.says("a.0", killed(kRound, 5));
  }
  SUBCASE("which had another one of its number") {
    place.says("a.0", killed({.number = 4, .by = "q@9"}, 5));
    CHECK_FALSE(place.has_begun_after(7800ms, nodes));
    CHECK(place.has_begun_after(700ms, nodes));
    return;
  }
  CHECK_FALSE(place.has_begun_after(1800ms, nodes));
  CHECK(place.has_begun_after(700ms, nodes));
}

// b hosted round 5, after a's. Of a's, which others may go on from, only c and d are here: they
// need a, and so the leases of those that a may have been with until it was killed.
TEST_CASE("Host change: nodes that go on with one that is gone wait for whom it was with") {
  const RoundId last{.number = 5, .by = "b@1"};
  const std::vector<std::string> nodes{"c.1", "d.1"};
  Place place("c@2", 2);
  for (const std::string& node : nodes) {
    request::Join join = place.join_from(node, last, 100ms, "b@1");
    join.after = {{.id = kRound, .nodes = 4, .was_in = true}};
    place.says(node, join);
    place.sees(node);
  }
  CHECK_FALSE(place.has_begun_after(3s, nodes));
  place.says("a.0", killed(kRound, 4));
  CHECK_FALSE(place.has_begun_after(4800ms, nodes));
  CHECK(place.has_begun_after(700ms, nodes));
}

// Of six nodes, a hosts and is silent, and v was killed. e falls silent, too: without it the others
// need v, and so do not go on when the leases are over that count without v's last contact.
TEST_CASE("Host change: a contact that was not waited for is not forgotten") {
  const std::vector<std::string> nodes{"b.1", "c.1", "d.1"};
  Place place("b@1", 1);
  for (const char* node : {"b.1", "c.1", "d.1", "e.1"}) {
    request::Join join = place.join_from(node, kRound, 100ms, "a@0", 6);
    join.settings.max_nodes = 6;
    place.says(node, join);
    place.sees(node);
  }
  CHECK_FALSE(place.has_begun_after(3s, nodes));
  place.says("v.0", killed(kRound, 6));
  CHECK_FALSE(place.has_begun_after(7800ms, nodes));
  CHECK(place.has_begun_after(700ms, nodes));
}

// v had joined b, which has begun a round with it that v never heard of.
TEST_CASE("Host change: a node that is gone may have counted elsewhere for a round unknown to it") {
  Place place("a@0");
  place.begins_with({"a.0", "b.0", "v.0"});
  const RoundId round{.number = 0, .by = "a@0"};
  for (int i = 0; i < 60; ++i) {  // nothing is heard of b and v
    place.now.mono += 100ms;
    place.says("a.0", request::Heartbeat{.pulse = place.pulse(), .round = 0});
    place.on(runs::event::Tick{});
  }
  place.says("a.0", request::Ready{.round = 0, .store_port = 1001});
  request::Left left = killed(round);
  left.seen_of = "b@1";
  place.says("v.1", left);
  CHECK_FALSE(place.has_begun_after(7900ms, {"a.0"}));
  CHECK(place.has_begun_after(1200ms, {"a.0"}));
}

// Its leases were waited for before the round began, so nothing is left to be waited for.
TEST_CASE("Host change: a round that has counted on a node which is gone is not stopped for it") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 1h, "a@0", 2);
  request::Left left = killed(kRound, 2);
  left.seen_of = "q@2";
  place.says("a.1", left);
  while (!place.has_begun_after(100ms, {"b.1"})) REQUIRE(place.now.mono < MonoTime(1h) + 20s);
  for (int i = 0; i < 100; ++i) {
    place.now.mono += 100ms;
    place.says("b.1", request::Heartbeat{.pulse = place.pulse()});
    REQUIRE(place.told<command::Stop>() == 0);
    place.on(runs::event::Tick{});
    REQUIRE(place.told<command::Stop>() == 0);
  }
}

// It was killed when others had been told, and before it was.
TEST_CASE("Host change: the hosting node knows each round that is formed here before anybody") {
  RoundSeeker node;
  node.state.is_own_host = true;
  const command::Round formed{.number = 5,
                              .run_uuid = "a.0",
                              .ranks = {.group_rank = 2, .group_world_size = 4},
                              .by = "a@0",
                              .after = {{.id = kRound, .nodes = 3, .was_in = true}}};
  auto knows = [&] {
    auto word = member::last_message(node.state, node.config, "");
    RoundId round = std::get<request::Left>(word.request).knows;
    CHECK(member::memory(node.state, node.config).knows == round);
    return round.number;
  };
  node.on(member::event::Heard{command::Stop{.round = 4, .why = "x"}});
  node.on(member::event::RoundWanted{1001});
  CHECK(knows() == 4);
  node.on(member::event::Formed{formed});
  CHECK(knows() == 5);
  CHECK(node.wanted<member::action::NotifyRound>() == nullptr);
  SUBCASE("and begins with it when it is told") {
    node.on(member::event::Heard{formed});
    CHECK(node.wanted<member::action::NotifyRound>() != nullptr);
    node.on(member::event::Heard{formed});
    CHECK(node.wanted<member::action::NotifyRound>() == nullptr);
  }
  SUBCASE("and asks there as one that was not told of it") {
    auto join = member::join_request(node.state, node.config, node.now.mono);
    CHECK(join.next_round == 5);
  }
  SUBCASE("and says so where it goes instead") {
    node.state.is_own_host = false;
    auto join = member::join_request(node.state, node.config, node.now.mono);
    CHECK(join.next_round == 6);
    CHECK(join.previous_nodes == 4);
    CHECK(join.after.size() == 1);
  }
}

TEST_CASE("Host change: what a node that ends tells of the host that it was with") {
  RoundSeeker node;
  node.on(member::event::PulseSeen{"6"});
  auto word = member::last_message(node.state, node.config, "");
  CHECK(std::get<request::Left>(word.request).seen_of == "a@0");
  CHECK_FALSE(std::get<request::Left>(word.request).seen_age);
  node.now.mono += 2s;
  node.on(member::event::Finished{});
  const auto* post = node.wanted<member::action::Post>();
  REQUIRE(post != nullptr);
  const auto& left = std::get<request::Left>(post->message.request);
  CHECK(left.knows == kRound);
  CHECK(left.nodes == 3);
  CHECK(left.seen_age == 2s);
  CHECK(left.seen_of == "a@0");
}

TEST_CASE(
    "Host change: the nodes in a run file have their leases, whatever others say of the host") {
  Place place = begun_anew("a@9", {"a", "b", "c", "d"});
  request::Left left = killed(kRound, 4);
  left.seen_age = 1h;
  place.says("a.0", left);
  place.joins_from("b.1", kRound, 1h, "a@0", 4);
  place.joins_from("c.1", kRound, 1h, "a@0", 4);
  CHECK_FALSE(place.has_begun_after(4900ms, {"b.1", "c.1"}));
  CHECK(place.has_begun_after(1200ms, {"b.1", "c.1"}));
}

TEST_CASE("Host change: nodes of two rounds of one number do not account for one of them") {
  Place place("c@2", 2);
  const RoundId other{.number = 4, .by = "q@0"};
  place.joins_from("b.1", kRound, 0s);
  place.joins_from("e.1", other, 0s, "q@0");
  place.joins_from("d.1", kRound, 0s);
  CHECK(place.told<command::Round>() == 0);
  CHECK_FALSE(place.has_begun_after(7900ms, {"b.1", "d.1", "e.1"}));
  CHECK(place.has_begun_after(1200ms, {"b.1", "d.1", "e.1"}));
}

TEST_CASE("Host change: nodes that know of no round begin none where one was here that did") {
  Place place("a@9");
  place.joins_from("d.1", kRound, 100ms);
  place.says("d.1", request::Leaving{.why = "was stopped"});
  CHECK_FALSE(place.state.runs.contains("job"));
  place.says("x.0", place.join_of("x.0"));
  place.says("y.0", place.join_of("y.0"));
  place.says("z.0", place.join_of("z.0"));
  CHECK_FALSE(place.has_begun_after(30s, {"x.0", "y.0", "z.0"}));
  CHECK(coordinator::waiting_text(place.run()).find("0 of the 3 nodes of round 4") !=
        std::string::npos);
}

TEST_CASE("Host change: the nodes of the last round have their places before those that come") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 100ms);
  place.says("x.0", place.join_of("x.0"));
  place.says("y.0", place.join_of("y.0"));
  place.joins_from("c.1", kRound, 100ms);
  place.says("a.0", killed(kRound));
  REQUIRE(place.told<command::Round>() == 3);
  std::vector<std::string> seated;
  for (const auto& send : place.sent) {
    if (std::holds_alternative<command::Round>(send.command)) seated.push_back(send.node);
  }
  CHECK(std::ranges::count(seated, "c.1") == 1);
  CHECK(std::ranges::count(seated, "y.0") == 0);
}

TEST_CASE("Host change: a node of the last round has its --node-rank before one that comes") {
  Place place("b@1", 1);
  place.joins_from("b.1", kRound, 100ms);
  request::Join newcomer = place.join_of("x.0");
  newcomer.node_rank = 2;
  place.says("x.0", newcomer);
  request::Join survivor = place.join_from("c.1", kRound, 100ms);
  survivor.node_rank = 2;
  place.says("c.1", survivor);
  CHECK(place.told<command::Refuse>() == 1);
  CHECK(place.run().nodes.contains("c.1"));
  CHECK_FALSE(place.run().nodes.contains("x.0"));
}

TEST_CASE("Host change: the leases of the old host's nodes count, whoever comes first") {
  Place place("e@9");
  request::Join first = place.join_of("x.0");
  first.settings = {.min_nodes = 3, .max_nodes = 5};
  first.policy.keep_alive_interval = 200ms;
  place.says("x.0", first);
  int nodes = 5;
  std::string seen_of = "a@0";
  SUBCASE("of two that may live") {}
  SUBCASE("of a host between") {
    nodes = 3;
    seen_of = "q@3";
  }
  for (const char* node : {"b.1", "c.1", "d.1"}) {
    request::Join join = place.join_from(node, kRound, 0s, seen_of, nodes);
    join.settings = first.settings;
    place.says(node, join);
  }
  CHECK_FALSE(place.has_begun_after(7900ms, {"x.0", "b.1", "c.1", "d.1"}));
  CHECK(place.has_begun_after(1200ms, {"x.0", "b.1", "c.1", "d.1"}));
}

TEST_CASE("Host change: the hosting node asks after a standstill before its first round, too") {
  Seeker node;
  node.joins(/*is_own_host=*/true);
  node.now.mono += 6s;
  node.hears_round();
  CHECK(node.wanted<member::action::NotifyRound>() == nullptr);
  node.now.mono += 100ms;
  node.on(member::event::Tick{node.now.mono});
  const auto* post = node.wanted<member::action::Post>();
  REQUIRE(post != nullptr);
  CHECK(std::holds_alternative<request::Resume>(post->message.request));
  node.on(member::event::Heard{command::Continue{}});
  node.hears_round();
  CHECK(node.wanted<member::action::NotifyRound>() != nullptr);
}

TEST_CASE("Host change: of two hosts that wait the one with the later round stays") {
  Place first("a@0");
  Place later("b@1", 1);
  for (Place* place : {&first, &later}) {
    std::string host = place->name.substr(0, 1) + ".0";
    for (const std::string& node :
         {host, std::string("c.0"), std::string("d.0"), std::string("e.0")}) {
      auto join = place->join_of(node);
      join.settings = {.min_nodes = 4, .max_nodes = 4};
      join.next_round = place == &later ? 3 : 0;
      place->says(node, join);
    }
    REQUIRE(place->told<command::Round>() == 4);
    place->says("c.0", request::Leaving{.why = "goes"});
    for (const std::string& node : {host, std::string("d.0"), std::string("e.0")})
      place->says(node, request::Ready{.round = place->run().round, .store_port = 1001});
    place->says("c.0", request::Left{});
    for (const char* node : {"d.0", "e.0"}) place->says(node, request::Leaving{.why = "goes"});
    REQUIRE(place->run().phase == coordinator::Phase::Gathering);
  }
  auto knock = runs::knock(later.state, "job", {"b", 7}, {"e", 1}, later.now.mono);
  REQUIRE(knock);
  CHECK(knock->formed == 4);
  CHECK_FALSE(knock->has_round);
  first.says("b.knock", *knock);
  CHECK(first.sent.empty());  // it looks first whether it reaches the other one
  REQUIRE(first.looks == std::vector<Endpoint>{{"b", 7}});
  auto back = runs::knock(first.state, "job", {"e", 1}, {"b", 7}, first.now.mono);
  REQUIRE(back);
  later.says("a.knock", *back);
  REQUIRE(later.told<command::Moved>() == 1);
  first.on(runs::event::Answered{"job", std::get<command::Moved>(later.sent.front().command)});
  CHECK(first.told<command::Moved>() == 1);
  CHECK_FALSE(first.state.runs.contains("job"));
}

namespace {

// b comes first by its order, and c finds no way to it, although b knocks.
struct OneBeyondReach {
  Place first{"b@1", 1};
  Place second{"c@2", 2};

  OneBeyondReach() {
    first.joins_from("b.1", kRound, 0s);
    second.joins_from("c.1", kRound, 0s);
  }
  // b knocks each second, and c looks back; returns what b is told in the end.
  std::optional<command::Moved> knocks_for(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      auto knock = runs::knock(first.state, "job", {"b", 7}, {"c", 7}, first.now.mono);
      REQUIRE(knock);
      second.says("b.knock", *knock);
      REQUIRE(second.looks == std::vector<Endpoint>{{"b", 7}});
      std::optional<command::Moved> told;
      for (const auto& send : second.sent) {
        const auto* moved = std::get_if<command::Moved>(&send.command);
        if (moved != nullptr && send.node == "b.knock") told = *moved;
      }
      if (told) return told;
      CHECK(second.sent.empty());
      second.on(runs::event::Unreached{"job", {"b", 7}});
      second.now.mono += 1s;
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("Host change: a host gives way to none that it does not reach, which then comes to it") {
  OneBeyondReach run;
  CHECK_FALSE(run.knocks_for(2));
  auto told = run.knocks_for(2);
  REQUIRE(told);
  CHECK(told->to == Endpoint{"c", 7});
  CHECK(run.second.told<command::Info>() == 1);
  CHECK(run.second.texts.size() == 1);
  CHECK(run.second.state.runs.contains("job"));
  SUBCASE("and does") {
    run.first.on(runs::event::Answered{"job", *told});
    REQUIRE(run.first.told<command::Moved>() == 1);
    const auto& moved = std::get<command::Moved>(run.first.sent.front().command);
    CHECK(moved.to == Endpoint{"c", 7});
    CHECK(moved.why ==
          "the run is to have another host, since no connection to b:7 comes about from there (a "
          "firewall, or an address that other machines do not reach?)");
  }
  SUBCASE("also if it is reached just then") {
    run.second.on(runs::event::Answered{"job", command::Moved{.to = {"b", 7}, .why = "x"}});
    CHECK(run.second.sent.empty());
    run.second.now.mono += 11s;
    run.second.on(runs::event::Answered{"job", command::Moved{.to = {"b", 7}, .why = "x"}});
    CHECK(run.second.told<command::Moved>() == 1);
  }
  SUBCASE("and says it to people once") {
    CHECK(run.knocks_for(1));
    CHECK(run.second.told<command::Info>() == 0);
  }
}

TEST_CASE("Host change: a host that is reached after a blink is given way to") {
  OneBeyondReach run;
  CHECK_FALSE(run.knocks_for(2));
  run.second.on(runs::event::Answered{"job", command::Moved{.to = {"b", 7}, .why = "x"}});
  CHECK(run.second.told<command::Moved>() == 1);
}
