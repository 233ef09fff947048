// SPDX-License-Identifier: BSD-3-Clause
//
// An agent that knows of no round finds its run where an agent of its machine knew it that has
// died: what is kept of that, where the new one looks and in which order, and who lets it in.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "rendezvous/decide/member.h"
#include "rendezvous/decide/member_messages.h"
#include "rendezvous/decide/node_file.h"
#include "tests/rendezvous/one_member.h"
#include "tests/rendezvous/one_run.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;

namespace {

const RunPlaces kKnown{.run_uuid = "a.0",
                       .at = {{.name = "b", .at = {"b", 7}}, {.name = "d", .at = {"d", 7}}}};

NodeFile file_with(const RunPlaces& places) {
  return {.boot = "boot",
          .run = "job",
          .node = {.name = "c", .knows = {.number = 4, .by = "b@1"}, .nodes = 3, .seen_of = "b@1"},
          .places = places};
}

struct Fresh : test::OneMember {
  Fresh() {
    config = {
        .run = "job", .name = "e", .endpoint = "e:1", .node = {.host = "c"}, .stand_in_port = 7};
  }
  void begins(const RunPlaces& known = kKnown) { on(member::event::RoundWanted{1000, known}); }
  std::string connects_to() const {
    const auto* connect = wanted<member::action::Connect>();
    if (connect == nullptr) return "nowhere";
    std::string place = connect->place ? to_string(*connect->place) : "endpoint";
    if (!connect->of.empty()) place += " of " + connect->of;
    return place + (connect->stand_in != 0 ? " as host" : "") +
           (connect->after > 0s ? " later" : "");
  }
  std::string after_failure(Duration took = 0s) {
    now.mono += took;
    on(member::event::ConnectFailed{.why = "refused", .is_refused = true});
    return connects_to();
  }
  void reaches(const std::string& coordinator) {
    on(member::event::Connected{.address = "10.0.0.3", .coordinator = coordinator});
  }
  const request::Join* joins() const {
    const auto* post = wanted<member::action::Post>();
    return post == nullptr ? nullptr : std::get_if<request::Join>(&post->message.request);
  }
  bool says(const std::string& text) const {
    const auto* told = wanted<member::action::NotifyUser>();
    return told != nullptr && told->text.find(text) != std::string::npos;
  }
};

// At b, where it looks for the run.
struct AtKnownPlace : Fresh {
  AtKnownPlace() {
    begins();
    REQUIRE(after_failure(1s) == "b:7 of b");
    reaches("b@3");
    REQUIRE(joins() != nullptr);
  }
};

struct Place : test::OneRun {
  explicit Place(const std::string& name) {
    on(runs::event::Begun{.files = {}, .name = name, .order = 1});
  }
  static request::Join join_of(const std::string& node) {
    return {.host = node.substr(0, node.find('.')),
            .address = node,
            .settings = {.min_nodes = 1, .max_nodes = 3},
            .policy = {.last_call_timeout = 0s},
            .store_port = 1000,
            .stand_in_port = 2000};
  }
  void has_round_of(const std::vector<std::string>& nodes) {
    for (const std::string& node : nodes) {
      request::Join join = join_of(node);
      join.settings.max_nodes = static_cast<int>(nodes.size()) + 1;
      join.policy.last_call_timeout = 100ms;
      says(node, join);
    }
    for (int i = 0; i < 100 && told<command::Round>() == 0; ++i) {
      now.mono += 100ms;
      for (const std::string& node : nodes)
        says(node, request::Heartbeat{.pulse = now.mono.time_since_epoch().count()});
      if (told<command::Round>() == 0) on(runs::event::Tick{});
    }
    REQUIRE(told<command::Round>() == nodes.size());
  }
  bool turns_away(const std::string& node, request::Join join) {
    join.looks_for = "a.0";
    says(node, join);
    const auto* answer = sent_to(node);
    const auto* standby = answer ? std::get_if<command::Standby>(&answer->command) : nullptr;
    return standby != nullptr && standby->is_outside;
  }
  const runs::action::Send* sent_to(const std::string& node) const {
    for (const auto& send : sent) {
      if (send.node == node) return &send;
    }
    return nullptr;
  }
};

}  // namespace

TEST_CASE("Known places: a node file keeps them, and is read without them") {
  auto read = decode_node_file(encode(file_with(kKnown)));
  REQUIRE(read);
  CHECK(read->places == kKnown);
  CHECK(read->node == file_with({}).node);
  auto of_older = decode_node_file(encode(file_with({})));
  REQUIRE(of_older);
  CHECK(of_older->places == RunPlaces{});
}

TEST_CASE("Known places: those that cannot be read are left out") {
  const std::string whole = encode(file_with({}));
  for (const std::string line :
       {"{", "[]", "{}", R"({"run_uuid":"a.0","places":[{"name":"b"}]})",
        R"({"run_uuid":"","places":[]})",
        R"({"run_uuid":"a.0","places":[{"name":"b","at":{"host":"b","port":70000}}]})"}) {
    CAPTURE(line);
    auto read = decode_node_file(whole + line + "\n");
    REQUIRE(read);
    CHECK(read->places == RunPlaces{});
    CHECK(read->node.name == "c");
  }
}

TEST_CASE("Known places: a node in a round leaves its host's and those of the others") {
  Fresh node;
  node.config.name = "c";
  node.begins({});
  node.reaches("a@0");
  auto hears_round_of = [&](std::uint64_t number, const std::string& by) {
    node.on(member::event::Heard{command::Round{
        .number = number,
        .run_uuid = "a.0",
        .by = by,
        .stand_ins = {{.name = "c", .at = {"c", 7}}, {.name = "d", .at = {"d", 7}}}}});
  };
  CHECK(member::run_places(node.state, node.config) == RunPlaces{});
  hears_round_of(4, "a@0");  // at the endpoint, which an agent tries anyway
  CHECK(member::run_places(node.state, node.config) ==
        RunPlaces{.run_uuid = "a.0", .at = {{.name = "d", .at = {"d", 7}}}});
  node.on(member::event::Heard{command::Stop{.round = 4, .why = "x"}});
  node.on(member::event::RoundWanted{1000});
  node.on(member::event::Heard{command::Moved{.to = {"b", 7}, .why = "x"}});
  node.reaches("b@1");
  hears_round_of(5, "b@1");
  CHECK(member::run_places(node.state, node.config) == kKnown);
  SUBCASE("not when the run is over") {
    node.on(member::event::Heard{command::End{}});
  }
  SUBCASE("not where a registry has the host") {
    node.config.has_registry = true;
  }
  SUBCASE("not where the user has named several endpoints") {
    node.config.node.settings.endpoints = {{"a", 1}, {"b", 1}};
  }
  CHECK(member::run_places(node.state, node.config) == RunPlaces{});
}

TEST_CASE("Known places: a standby that was in no round leaves them, too") {
  Fresh node;
  node.config.name = "c";
  node.begins({});
  node.reaches("a@0");
  node.on(member::event::Heard{command::Moved{.to = {"b", 7}, .why = "x"}});
  node.reaches("b@1");
  auto stands_by = [&](const std::string& run_uuid) {
    node.on(member::event::Heard{command::Standby{"there are enough"}});
    node.on(member::event::Heard{
        command::StandIns{.stand_ins = {{.name = "d", .at = {"d", 7}}}, .run_uuid = run_uuid}});
  };
  stands_by("");  // as an older host says it
  CHECK(member::run_places(node.state, node.config) == RunPlaces{});
  stands_by("a.0");
  const RunPlaces places = member::run_places(node.state, node.config);
  CHECK(places == kKnown);
  const Died memory = member::memory(node.state, node.config);
  CHECK(memory.knows.by.empty());
  NodeFile file{.boot = "boot", .run = "job", .node = memory, .places = places};
  auto read = decode_node_file(encode(file));
  REQUIRE(read);
  CHECK(read->places == kKnown);
  CHECK(read->node == memory);
  CHECK_FALSE(read->knows_round());
  file.places = {};
  CHECK_FALSE(decode_node_file(encode(file)));  // it says nothing
  SUBCASE("not when the run is over") {
    node.on(member::event::Heard{command::End{}});
    CHECK(member::run_places(node.state, node.config) == RunPlaces{});
  }
  SUBCASE("of the start of the run in which it waits") {
    node.on(member::event::Heard{command::Round{.number = 4,
                                                .run_uuid = "a.0",
                                                .by = "b@1",
                                                .stand_ins = {{.name = "d", .at = {"d", 7}}}}});
    node.on(member::event::Heard{command::Stop{.round = 4, .why = "x"}});
    node.on(member::event::RoundWanted{1000});
    stands_by("z.0");
    CHECK(member::run_places(node.state, node.config).run_uuid == "z.0");
    stands_by("");
    CHECK(member::run_places(node.state, node.config).run_uuid == "a.0");
  }
}

TEST_CASE("Known places: the endpoint comes first, and they follow in turn with it") {
  Fresh node;
  node.begins();
  CHECK(node.connects_to() == "endpoint");
  CHECK(node.wanted<member::action::Connect>()->timeout == 1s);
  CHECK(node.after_failure(200ms) == "endpoint later");
  CHECK(node.after_failure(800ms) == "b:7 of b");
  CHECK(node.wanted<member::action::Connect>()->timeout == 1s);  // L/5
  SUBCASE("one after the other if they refuse") {
    CHECK(node.after_failure(1ms) == "d:7 of d");
    CHECK(node.after_failure(1ms) == "endpoint later");
    CHECK(node.wanted<member::action::Connect>()->timeout == 0s);
    CHECK(node.after_failure(1ms) == "b:7 of b");
  }
  SUBCASE("the endpoint in between if they take their time") {
    CHECK(node.after_failure(1s) == "endpoint");
    CHECK(node.after_failure(2s) == "d:7 of d");
    CHECK(node.after_failure(1s) == "endpoint later");
    CHECK(node.after_failure(2s) == "b:7 of b");
  }
}

TEST_CASE("Known places: they are tried for no longer than the endpoint would be") {
  Fresh node;
  node.begins();
  MonoTime began = node.now.mono;
  while (node.after_failure(500ms) != "nowhere") REQUIRE(node.now.mono < began + 2min);
  CHECK(node.now.mono - began < 62s);
  const auto* failure = node.wanted<member::action::NotifyFailure>();
  REQUIRE(failure != nullptr);
  CHECK(failure->why.find("nor is the run where an agent of this machine knew it (2 places)") !=
        std::string::npos);
}

TEST_CASE("Known places: an agent that cannot use them does not look there") {
  Fresh node;
  SUBCASE("none is known") {
    node.begins({});
  }
  SUBCASE("it takes part in no change of hosts") {
    node.config.stand_in_port = 0;
    node.begins();
  }
  SUBCASE("a registry says who hosts") {
    node.config.has_registry = true;
    node.begins();
  }
  CHECK(node.wanted<member::action::Connect>()->timeout == 0s);
  for (int i = 0; i < 10; ++i) CHECK(node.after_failure(500ms) == "endpoint later");
}

TEST_CASE("Known places: a node joins there, and says which start of the run it looks for") {
  AtKnownPlace node;
  CHECK(node.says("looking for the run at b:7 (b), where an agent of this machine knew it before"));
  CHECK(node.joins()->looks_for == "a.0");
  CHECK(node.joins()->run_uuid.empty());
  CHECK_FALSE(node.joins()->is_back);
  SUBCASE("and is in it as soon as it has a round") {
    node.on(member::event::Heard{command::Round{.number = 6, .run_uuid = "a.0", .by = "b@3"}});
    CHECK(node.wanted<member::action::NotifyRound>() != nullptr);
  }
  SUBCASE("and ends with the run if that ends meanwhile") {
    node.on(member::event::Heard{command::End{.exit_code = 1}});
    CHECK(node.wanted<member::action::NotifyEnd>() != nullptr);
  }
  SUBCASE("and looks for it as before if that host is lost") {
    node.on(member::event::ConnectionLost{"reset"});
    CHECK(node.connects_to() == "b:7 of b");
    CHECK(node.after_failure() == "endpoint");
    CHECK(node.after_failure(1s) == "b:7 of b");
  }
}

TEST_CASE("Known places: at the endpoint a node names no start of the run") {
  Fresh node;
  node.begins();
  SUBCASE("at once") {}
  SUBCASE("after it has looked elsewhere") {
    CHECK(node.after_failure(1s) == "b:7 of b");
    CHECK(node.after_failure(1s) == "endpoint");
  }
  node.reaches("a@0");
  REQUIRE(node.joins() != nullptr);
  CHECK(node.joins()->looks_for.empty());
}

TEST_CASE("Known places: where the run is no more, a node goes on looking as if it had not come") {
  AtKnownPlace node;
  const MonoTime began = node.state.connecting_since;
  const std::string id = member::node_id(node.state, node.config);
  node.on(member::event::Heard{command::Standby{.why = "it has ended", .is_outside = true}});
  CHECK(node.says("b:7: it has ended"));
  CHECK(node.wanted<member::action::Disconnect>() != nullptr);
  CHECK(node.wanted<member::action::NotifyEnd>() == nullptr);
  CHECK(node.connects_to() == "d:7 of d");
  CHECK(member::node_id(node.state, node.config) != id);
  CHECK(node.state.connecting_since == began);
  CHECK(node.after_failure(1s) == "endpoint later");
  node.reaches("a@0");
  REQUIRE(node.joins() != nullptr);
  CHECK(node.joins()->looks_for.empty());
  CHECK_FALSE(node.joins()->is_back);
  CHECK_FALSE(node.joins()->seen_age);
}

TEST_CASE("Known places: a host lets a node in that looks for a run which is there") {
  Place place("b@3");
  place.has_round_of({"b.0", "c.0"});
  CHECK_FALSE(place.turns_away("e.0", [&] {
    request::Join join = Place::join_of("e.0");
    join.settings = place.run().settings;
    return join;
  }()));
  CHECK(place.run().nodes.contains("e.0"));
}

TEST_CASE("Known places: no run begins with a node that looks for one") {
  Place place("b@3");
  CHECK(place.turns_away("e.0", Place::join_of("e.0")));
  CHECK(place.state.runs.empty());
  SUBCASE("nor among others that know of none") {
    place.says("x.0", Place::join_of("x.0"));
    CHECK(place.turns_away("e.1", Place::join_of("e.1")));
    CHECK(place.run().nodes.size() == 1);
  }
  SUBCASE("nor when its run has ended") {
    place.has_round_of({"b.0", "c.0"});
    request::Join join = Place::join_of("e.0");
    join.settings = place.run().settings;
    for (const char* node : {"b.0", "c.0"}) place.says(node, request::Succeeded{.round = 0});
    REQUIRE(place.run().phase == coordinator::Phase::Ended);
    CHECK(place.turns_away("e.1", join));
    for (const char* node : {"b.0", "c.0"}) place.says(node, request::Left{});
    CHECK(place.state.runs.empty());
    CHECK(place.turns_away("e.2", join));
  }
}
