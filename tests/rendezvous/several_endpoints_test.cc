// SPDX-License-Identifier: BSD-3-Clause
//
// A run whose nodes have several endpoints, a ddpd at each: scenarios in words, for the
// coordinators and for a member.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_messages.h"
#include "tests/rendezvous/daemon.h"
#include "tests/rendezvous/one_member.h"
#include "tests/rendezvous/one_run.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace ddprun::rendezvous::test;
using namespace std::chrono_literals;

namespace {

struct Node : OneMember {
  Node() {
    config = {.run = "job",
              .name = "c",
              .endpoint = "d1:1,d2:2",
              .node = {.host = "c", .settings = {.endpoints = kEndpoints}}};
  }
  std::string connects_to() const {
    for (const auto& action : actions) {
      const auto* connect = std::get_if<member::action::Connect>(&action);
      if (connect == nullptr) continue;
      std::string place = connect->place ? to_string(*connect->place) : "d1:1";
      return place + (connect->after > 0s ? " later" : "");
    }
    return "nowhere";
  }
  const request::Resume* resume() const {
    for (const auto& action : actions) {
      const auto* post = std::get_if<member::action::Post>(&action);
      if (post == nullptr) continue;
      if (const auto* said = std::get_if<request::Resume>(&post->message.request)) return said;
    }
    return nullptr;
  }
  void comes_to(const std::string& coordinator) {
    on(member::event::Connected{
        .address = "10.0.0.3", .coordinator = coordinator, .is_at_daemon = true});
  }
  void is_in_a_round() {
    on(member::event::RoundWanted{1000});
    comes_to("d1@0");
    on(member::event::Heard{command::Round{.number = 4,
                                           .run_uuid = "a.0",
                                           .ranks = {.group_rank = 2, .group_world_size = 3},
                                           .by = "d1@0"}});
  }
  bool is_told_to_stop() const {
    return std::ranges::any_of(actions, [](const auto& action) {
      return std::holds_alternative<member::action::NotifyStop>(action);
    });
  }
};

}  // namespace

TEST_CASE("Several endpoints: with one endpoint a run at a ddpd has no other host") {
  Daemon daemon(0, "d1@0");
  daemon.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    request::Join join = daemon.join_of(node);
    join.settings.endpoints.clear();
    join.stand_in_port = 7;
    daemon.says(node, join);
  }
  REQUIRE(daemon.told<command::Round>() == 3);
  CHECK(daemon.run().quorum.self.empty());
  for (const auto& send : daemon.sent) {
    if (const auto* round = std::get_if<command::Round>(&send.command)) {
      CHECK(round->by.empty());
      CHECK(round->stand_ins.empty());
    }
  }
  CHECK(daemon.knocks.empty());
}

TEST_CASE("Several endpoints: nodes with other endpoints are refused") {
  Daemon daemon(0, "d1@0");
  daemon.says("a.0", daemon.join_of("a.0"));
  daemon.says("a.0", request::Heartbeat{});  // it is more than a name
  request::Join other = daemon.join_of("b.0");
  SUBCASE("in another order") {
    std::ranges::reverse(other.settings.endpoints);
  }
  SUBCASE("with one") {
    other.settings.endpoints.clear();
  }
  daemon.says("b.0", other);
  CHECK(daemon.told<command::Refuse>() == 1);
}

TEST_CASE("Several endpoints: a round goes on at another one when more than half have come") {
  Daemon second(1, "d2@0");
  second.resumes("a.0");
  CHECK(second.told<command::Continue>() == 0);
  CHECK(second.is_alone());
  CHECK(second.knocks.size() == 1);  // it may be there still
  second.beats("a.0");
  CHECK(second.told<command::Continue>() == 0);
  second.resumes("b.0");
  second.beats("a.0");
  CHECK(second.is_alone());
  second.beats("b.0");
  CHECK(second.told<command::Continue>() == 2);
  CHECK_FALSE(second.is_alone());
  CHECK(second.run().round == 4);
  second.resumes("c.0");
  CHECK(second.told<command::Continue>() == 1);
  CHECK_FALSE(second.run().former.awaited);
}

TEST_CASE("Several endpoints: half of a round does not go on at another one") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0"}) {
    second.resumes(node, 100ms, "d1@0", 4);
    second.beats(node);
  }
  CHECK(second.is_alone());
  CHECK(second.told<command::Continue>() == 0);
  std::size_t stops = 0;
  for (int i = 0; i < 3; ++i) {
    second.now.mono += 900ms;
    second.on(runs::event::Tick{});
    stops += second.told<command::Stop>();
  }
  CHECK(stops == 2);
}

TEST_CASE("Several endpoints: a round that has lost a node does not go on") {
  Daemon second(1, "d2@0");
  second.says("x.0", second.join_of("x.0"));  // a newcomer
  request::Left left{.why = "was lost", .round = 4, .knows = kRound, .nodes = 3, .seen_of = "d1@0"};
  second.says("c.0", left);
  second.resumes("a.0");
  second.resumes("b.0");
  second.beats("a.0");
  second.beats("b.0");
  CHECK(second.run().phase == coordinator::Phase::Stopping);
}

TEST_CASE("Several endpoints: a round is not gone on with where a node has come without workers") {
  Daemon second(1, "d2@0");
  second.says("a.1", second.join_from("a.1", 100ms));
  second.resumes("b.0");
  CHECK(second.told<command::Dropped>() == 1);
  CHECK(second.run().phase == coordinator::Phase::Gathering);
}

TEST_CASE("Several endpoints: the lease of a silent node is over when the others are heard later") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) second.resumes(node);
  for (const char* node : {"a.0", "b.0", "c.0"}) second.beats(node);
  std::int64_t pulse = 0;
  // What they say lies there unread for a while.
  for (int i = 0; i < 70 && second.told<command::Stop>() == 0; ++i) {
    second.now.mono += 100ms;
    pulse = second.now.mono.time_since_epoch().count() - 50'000'000;
    second.says("a.0", request::Heartbeat{.pulse = pulse, .round = 4});
    second.says("b.0", request::Heartbeat{.pulse = pulse, .round = 4});
    second.on(runs::event::Tick{});
  }
  REQUIRE(second.told<command::Stop>() == 2);
  second.says("a.0", request::Ready{.round = 4, .store_port = 1});
  second.says("b.0", request::Ready{.round = 4, .store_port = 1});
  second.says("a.0", request::Heartbeat{.pulse = pulse, .round = 4});
  CHECK(second.told<command::Round>() == 0);
  second.beats("a.0");
  CHECK(second.told<command::Round>() == 0);
  second.beats("b.0");
  CHECK(second.told<command::Round>() == 2);
}

TEST_CASE("Several endpoints: a failure after the move has its restart at once") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    request::Join join = second.join_from(node, 100ms);
    join.policy.max_restarts = 1;
    second.says(node, request::Resume{.join = join, .workers = Workers::Up, .failed = {}});
  }
  for (const char* node : {"a.0", "b.0", "c.0"}) second.beats(node);
  second.says("a.0", request::Failed{.round = 4, .failure = {}, .is_final = false});
  CHECK(second.told<command::Stop>() == 3);
  for (const char* node : {"a.0", "b.0", "c.0"})
    second.says(node, request::Ready{.round = 4, .store_port = 1});
  REQUIRE(second.told<command::Round>() == 3);
  CHECK(second.run().round == 5);
  CHECK(second.run().restarts.count == 1);
}

TEST_CASE(
    "Several endpoints: nodes without workers wait for the leases that another one may have") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) second.resumes(node, 0s, "d1@0", 3, Workers::Down);
  auto goes_on_for = [&](Duration duration) {
    for (MonoTime end = second.now.mono + duration; second.now.mono < end;) {
      second.now.mono += 90ms;
      for (const char* node : {"a.0", "b.0", "c.0"}) {
        second.beats(node);
        if (second.told<command::Round>() > 0) return false;
      }
    }
    return true;
  };
  CHECK(goes_on_for(7800ms));
  CHECK_FALSE(goes_on_for(500ms));
}

TEST_CASE("Several endpoints: a ddpd that has gone on gives way, and renews no lease any more") {
  Daemon first(0, "d1@0");
  first.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, first.join_of(node));
  REQUIRE(first.told<command::Round>() == 3);
  first.now.mono += 1h;  // it stood still
  first.on(runs::event::Tick{});
  CHECK(first.is_alone());
  first.says("d2@0.knock", request::Knock{.from = kEndpoints[1],
                                          .to = kEndpoints[0],
                                          .has_round = true,
                                          .order = 1,
                                          .run_uuid = "a.0"});
  CHECK(first.told<command::Moved>() == 3);
  CHECK(first.state.runs.empty());
  CHECK(first.is_alone());
  first.now.mono += 6s;
  first.on(runs::event::Tick{});
  CHECK_FALSE(first.is_alone());

  SUBCASE("who comes is sent on") {
    first.says("x.0", first.join_of("x.0"));
    REQUIRE(first.told<command::Moved>() == 1);
    CHECK(std::get<command::Moved>(first.sent.front().command).to == kEndpoints[1]);
  }
  SUBCASE("but not who comes from there") {
    first.resumes("a.0", 100ms, "d2@0");
    CHECK(first.told<command::Moved>() == 0);
    CHECK(first.state.runs.contains("job"));
  }
  SUBCASE("nor a node of another run of that name, with one endpoint") {
    request::Join join = first.join_of("x.0");
    join.settings.endpoints.clear();
    first.says("x.0", join);
    CHECK(first.told<command::Moved>() == 0);
  }
}

TEST_CASE("Several endpoints: a node that has gone on elsewhere is not in the round any more") {
  Daemon first(0, "d1@0");
  first.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, first.join_of(node));
  REQUIRE(first.told<command::Round>() == 3);
  request::Join join = first.join_from("a.0", 100ms, "d2@0");
  join.next_round = 2;
  join.round_by = "d2@0";
  first.says("a.0", request::Resume{.join = join, .workers = Workers::Up, .failed = {}});
  CHECK(first.told<command::Dropped>() == 1);
  CHECK_FALSE(first.run().nodes.contains("a.0"));
}

TEST_CASE("Several endpoints: the end of a run is told to the others, and forgotten there") {
  Daemon first(0, "d1@0");
  first.says("x.0", first.join_from("x.0", 1s));
  first.says("x.0", request::Left{});
  REQUIRE(first.state.quorums.contains("job"));
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    second.resumes(node);
    second.beats(node);
  }
  for (const char* node : {"a.0", "b.0", "c.0"}) second.says(node, request::Succeeded{.round = 4});
  CHECK(second.told<command::End>() == 3);
  REQUIRE(second.knocks.size() == 1);
  CHECK(second.knocks[0].is_over);
  first.says("d2@0.knock", second.knocks[0]);
  CHECK(first.state.quorums.empty());

  SUBCASE("a node that was away is sent to where it ended") {
    first.says("a.1", first.join_from("a.1", 1s));
    REQUIRE(first.knocks.size() == 1);
    second.says("d1@0.knock", first.knocks[0]);
    CHECK(second.told<command::Moved>() == 1);
  }
}

TEST_CASE("Several endpoints: what was known of a run without nodes is forgotten in the end") {
  Daemon first(0, "d1@0");
  first.says("x.0", first.join_from("x.0", 1s));
  first.says("x.0", request::Left{});
  first.now.mono += 9min;
  first.on(runs::event::Tick{});
  CHECK(first.state.quorums.contains("job"));
  first.now.mono += 2min;
  first.on(runs::event::Tick{});
  CHECK(first.state.quorums.empty());
}

TEST_CASE("Several endpoints: a node tries them in their order") {
  Node node;
  node.on(member::event::RoundWanted{1000});
  CHECK(node.connects_to() == "d1:1");
  node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
  CHECK(node.connects_to() == "d2:2");
  node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
  CHECK(node.connects_to() == "d1:1 later");
}

TEST_CASE(
    "Several endpoints: a node with workers goes on at the next one, at once if one is silent") {
  Node node;
  node.is_in_a_round();
  SUBCASE("when the connection breaks") {
    node.on(member::event::ConnectionLost{.why = "reset"});
    CHECK(node.connects_to() == "d1:1");
    node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
    CHECK(node.connects_to() == "d2:2");
  }
  SUBCASE("when no answer comes") {
    node.on(member::event::ConnectionLost{.why = "no answer", .is_mute = true});
    CHECK(node.connects_to() == "d2:2");
  }
  CHECK_FALSE(node.is_told_to_stop());
}

TEST_CASE("Several endpoints: a node says where it comes from, and waits for more than a pulse") {
  Node node;
  node.is_in_a_round();
  node.now.mono += 500ms;
  node.on(member::event::ConnectionLost{.why = "no answer", .is_mute = true});
  node.comes_to("d2@0");
  const request::Resume* resume = node.resume();
  REQUIRE(resume != nullptr);
  CHECK(resume->join.seen_of == "d1@0");
  CHECK(resume->join.seen_age == 500ms);
  CHECK(resume->join.endpoint == 1);
  CHECK(resume->workers == Workers::Up);

  MonoTime before = node.state.pulse_at;
  node.on(member::event::PulseSeen{"3600600000000"});
  CHECK(node.state.pulse_at == before);  // it may be that of before the others came
  CHECK(node.state.seen.last()->of == "d2@0");
  node.on(member::event::Heard{command::Continue{}});
  CHECK(node.state.pulse_at > before);

  SUBCASE("and goes back, if that is where the run is") {
    node.on(member::event::Heard{command::Moved{.to = kEndpoints[0], .why = "the run is there"}});
    CHECK(node.connects_to() == "d1:1");
    CHECK_FALSE(node.is_told_to_stop());
    node.comes_to("d1@0");
    REQUIRE(node.resume() != nullptr);
    CHECK(node.resume()->join.seen_of == "d2@0");
  }
  SUBCASE("but to no place that the user has not named") {
    node.on(member::event::Heard{command::Moved{.to = {"d9", 9}, .why = "the run is there"}});
    CHECK(node.connects_to() == "nowhere");
  }
}

// One of the endpoints is out of reach for this node alone, and the run is there.
TEST_CASE("Several endpoints: a node that comes says which of them it does not reach") {
  Node node;
  auto unreached = [&] {
    for (const auto& action : node.actions) {
      const auto* post = std::get_if<member::action::Post>(&action);
      if (post == nullptr) continue;
      if (const auto* join = std::get_if<request::Join>(&post->message.request))
        return join->unreached;
    }
    return 99U;
  };
  node.on(member::event::RoundWanted{1000});
  CHECK(node.connects_to() == "d1:1");
  node.on(member::event::ConnectFailed{.why = "timed out"});
  REQUIRE(node.connects_to() == "d2:2");
  SUBCASE("of late") {
    node.comes_to("d2@0");
    CHECK(unreached() == 1);
  }
  SUBCASE("what was before that may be over") {
    node.now.mono += 5s;
    node.comes_to("d2@0");
    CHECK(unreached() == 0);
  }
}

TEST_CASE("Several endpoints: a node that is sent where it cannot go says so, and takes its time") {
  Node node;
  auto is_sent_back = [&] {
    node.on(member::event::Heard{command::Moved{.to = kEndpoints[0], .why = "the run is there"}});
  };
  auto fails_and_goes_on = [&] {
    node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
    for (int i = 0; i < 3 && node.connects_to() != "d2:2"; ++i)
      node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
    REQUIRE(node.connects_to() == "d2:2");
    node.comes_to("d2@0");
  };
  SUBCASE("with workers") {
    node.is_in_a_round();
    node.on(member::event::ConnectionLost{.why = "reset"});
    fails_and_goes_on();
    is_sent_back();
    CHECK(node.connects_to() == "d1:1 later");
    const auto* said = node.wanted<member::action::NotifyUser>();
    REQUIRE(said != nullptr);
    CHECK(said->text ==
          "the run is there, at d1:1, which this node cannot reach (refused); going on there");
    fails_and_goes_on();
    is_sent_back();
    CHECK(node.wanted<member::action::NotifyUser>() == nullptr);  // the same once more
    SUBCASE("until it gets there") {
      node.comes_to("d1@0");
      CHECK_FALSE(node.state.unreached);
    }
    SUBCASE("and what was long ago does not count") {
      fails_and_goes_on();
      node.now.mono += 21s;
      is_sent_back();
      CHECK(node.connects_to() == "d1:1");
    }
  }
  SUBCASE("without workers, for as long as join_timeout") {
    node.config.node.policy.join_timeout = 12s;
    node.on(member::event::RoundWanted{1000});
    for (int second = 0; second < 12; ++second) {
      fails_and_goes_on();
      node.on(member::event::Heard{command::StandIns{}});  // the coordinator there lives
      is_sent_back();
      CHECK(node.connects_to().ends_with(" later"));
      node.now.mono += 1s;
    }
    fails_and_goes_on();
    is_sent_back();
    const auto* failure = node.wanted<member::action::NotifyFailure>();
    REQUIRE(failure != nullptr);
    CHECK(failure->why ==
          "the run is there, at d1:1, which this node cannot reach (refused); tried for 12.0 s");
    CHECK(node.state.is_over);
  }
}

TEST_CASE("Several endpoints: a node says where it comes from until it has an answer") {
  Node node;
  node.is_in_a_round();
  node.on(member::event::ConnectionLost{.why = "no answer", .is_mute = true});
  node.comes_to("d2@0");  // what it says there is lost
  node.now.mono += 300ms;
  node.on(member::event::ConnectionLost{.why = "reset"});
  node.comes_to("d2@0");
  REQUIRE(node.resume() != nullptr);
  CHECK(node.resume()->join.seen_of == "d1@0");
  CHECK(node.resume()->join.seen_age == 300ms);
  CHECK(std::get<request::Left>(member::last_message(node.state, node.config, "").request)
            .seen_of.empty());  // each is to count it
  node.on(member::event::Heard{command::Continue{}});
  node.on(member::event::ConnectionLost{.why = "reset"});
  node.comes_to("d2@0");
  CHECK(node.resume()->join.seen_of == "d2@0");
}

TEST_CASE("Several endpoints: a ddpd that is alone ends no run because all have succeeded") {
  Daemon first(0, "d1@0");
  first.last_call = 1h;
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, first.join_of(node));
  first.now.mono += 1h;  // it stood still, and reads what was said before
  for (const char* node : {"a.0", "b.0", "c.0"}) first.says(node, request::Succeeded{.round = 0});
  CHECK(first.told<command::End>() == 0);
  CHECK(first.run().phase == coordinator::Phase::Running);
}

TEST_CASE("Several endpoints: a standby that comes after the whole round keeps no end waiting") {
  Daemon second(1, "d2@0");
  for (const char* node : {"a.0", "b.0", "c.0"}) {
    second.resumes(node);
    second.beats(node);
  }
  request::Join standby = second.join_of("x.0");
  standby.is_back = true;  // it stood by elsewhere, and was told of no round
  second.says("x.0", standby);
  CHECK(second.told<command::Standby>() == 1);
  for (const char* node : {"a.0", "b.0", "c.0"}) second.says(node, request::Succeeded{.round = 4});
  CHECK(second.told<command::End>() == 4);
}

TEST_CASE("Several endpoints: a node that comes before the last of a round stands by soon after") {
  Daemon second(1, "d2@0");
  second.resumes("a.0");
  second.resumes("b.0");
  second.now.mono += 2s;
  second.says("x.0", second.join_of("x.0"));
  CHECK(second.told<command::Standby>() == 0);  // there is room, as far as is known
  CHECK(second.texts.size() == 1);
  second.resumes("c.0");
  std::size_t standbys = 0;
  for (int i = 0; i < 15 && standbys == 0; ++i) {
    for (const char* node : {"a.0", "b.0", "c.0", "x.0"}) second.beats(node);
    second.now.mono += 60ms;
    second.on(runs::event::Tick{});
    standbys = second.told<command::Standby>();
    REQUIRE(second.told<command::Stop>() == 0);
  }
  CHECK(standbys == 1);
}

TEST_CASE("Several endpoints: nodes of a later round are awaited after those of an earlier one") {
  Daemon second(1, "d2@0");
  request::Join join = second.join_from("x.1", 1h);
  join.next_round = 3;
  second.says("x.1", join);
  second.now.mono += 20s;
  second.on(runs::event::Tick{});
  second.resumes("a.0");
  second.resumes("b.0");
  CHECK(second.told<command::Dropped>() == 0);
  second.resumes("c.0");
  CHECK(second.told<command::Dropped>() == 0);
}

TEST_CASE("Several endpoints: it is known here when the nodes were last heard elsewhere") {
  Daemon second(1, "d2@0");
  second.resumes("a.0", 700ms);
  CHECK(second.run().contacts.elsewhere == second.now.mono - 700ms);
  // The missing ones may be with that coordinator for L/2 more.
  CHECK(second.run().former.awaited->until == second.now.mono - 700ms + 8s);
  second.resumes("b.0");
  CHECK(second.run().former.awaited->until == second.now.mono - 100ms + 8s);
  second.beats("a.0");
  second.beats("b.0");
  second.resumes("a.0", 200ms, "d3@0");  // back from a third one
  CHECK(second.run().contacts.between == second.now.mono - 200ms);
}

TEST_CASE(
    "One endpoint: a round that has lost a node does not go on at a ddpd that was started again") {
  Daemon daemon(0, "d1@1");
  auto with_one = [&](request::Join join) {
    join.settings.endpoints.clear();
    join.round_by.clear();
    return join;
  };
  request::Join back = with_one(daemon.join_of("x.0"));
  back.is_back = true;
  daemon.says("x.0", back);
  daemon.says("c.0", request::Left{.why = "was lost", .round = 4});
  for (const char* node : {"a.0", "b.0"}) {
    daemon.says(node, request::Resume{.join = with_one(daemon.join_from(node, 100ms)),
                                      .workers = Workers::Up,
                                      .failed = {}});
  }
  CHECK(daemon.run().phase == coordinator::Phase::Stopping);
}

TEST_CASE("Several endpoints: the one is named that was lost, not the one that was reached since") {
  Node node;
  node.is_in_a_round();
  node.on(member::event::ConnectionLost{"it closed the connection"});
  node.on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
  SUBCASE("the run does not go on there") {
    node.comes_to("d2@1");
    CHECK(node.wanted<member::action::NotifyUser>()->text ==
          "reached d2:2, to which the run may have moved");
    while (!node.is_told_to_stop() && node.now.mono < MonoTime(1h + 10s)) {
      node.on(member::event::PulseSeen{std::to_string(node.now.mono.time_since_epoch().count())});
      node.now.mono += 500ms;
      node.on(member::event::Tick{});
    }
    REQUIRE(node.is_told_to_stop());
    CHECK(node.wanted<member::action::NotifyStop>()->stop.why ==
          "d1:1, where the nodes meet, has been silent for 2.5 s, and the run has not gone on at "
          "d2:2");
  }
  SUBCASE("this node stood still meanwhile") {
    node.now.mono += 20s;
    node.comes_to("d2@1");
    REQUIRE(node.is_told_to_stop());
    CHECK(node.wanted<member::action::NotifyStop>()->stop.why ==
          "this node stood still past the end of its lease");
  }
  SUBCASE("nothing was there for long") {
    node.now.mono += 6s;
    node.state.last_tick = node.now.mono;
    node.comes_to("d2@1");
    REQUIRE(node.is_told_to_stop());
    CHECK(node.wanted<member::action::NotifyStop>()->stop.why ==
          "nothing was heard from d1:1 for longer than the lease of this node");
  }
}
