// SPDX-License-Identifier: BSD-3-Clause
//
// Stacks on request: what nodes say, who is asked and how often, and what the page shows.
#include "rendezvous/decide/stacks.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "rendezvous/decide/messages.h"
#include "rendezvous/decide/runs.h"
#include "rendezvous/decide/stack_inquiry.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using Json = nlohmann::json;

namespace {

NodeStacks some() {
  return {.number = 3,
          .tools = {"py-spy"},
          .workers = {{.rank = 4,
                       .pid = 17,
                       .in = "all_reduce",
                       .place = "<module> (train.py:118)",
                       .doing = "sleeping in futex_wait",
                       .waits = true,
                       .frames = {"all_reduce (torch/x.py:1)", "<module> (train.py:118)"}},
                      {.rank = 5, .pid = 18, .doing = "running", .problem = "Permission Denied"}}};
}

// A host of one run with two nodes of two workers each.
struct Place {
  runs::State state;
  std::map<std::string, std::string> said;
  std::vector<std::string> asked;  // "a 1", with the number
  Now now{.mono = MonoTime(1h)};

  Place() {
    for (const char* node : {"a", "b"}) {
      on(runs::event::Arrived{
          {.run = "job",
           .node = node,
           .request = request::Join{.host = node,
                                    .address = node,
                                    .pid = 17,
                                    .participant = {.local_world_size = 2},
                                    .settings = {.min_nodes = 2, .max_nodes = 2},
                                    .policy = {.max_restarts = 1},
                                    .store_port = 1000,
                                    .run_uuid = "uuid"}}});
    }
  }
  void on(const runs::Event& event) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    for (const auto& action : next.actions) {
      const auto* send = std::get_if<runs::action::Send>(&action);
      const auto* take = send ? std::get_if<command::TakeStacks>(&send->command) : nullptr;
      if (take) asked.push_back(send->node + " " + std::to_string(take->number));
    }
  }
  std::vector<std::string> wants(std::optional<int> rank = std::nullopt) {
    asked.clear();
    on(runs::event::StacksWanted{.run = "job", .rank = rank});
    return asked;
  }
  Json page() {
    auto text = stacks_json(
        state, "job", [this](const std::string& node) { return said[node]; }, now.mono);
    REQUIRE(text);
    return Json::parse(*text);
  }
};

using Asked = std::vector<std::string>;

}  // namespace

TEST_SUITE("rendezvous/decide/stacks") {
  TEST_CASE("what is written is read again, and no more workers than the node has") {
    CHECK(decode_stacks(encode(some()), 8) == some());
    CHECK(decode_stacks(encode(some()), 1)->workers.size() == 1);
    CHECK(decode_stacks(encode(NodeStacks{}), 8) == NodeStacks{});
  }

  TEST_CASE("a text is never longer than its bound: frames go first, then workers") {
    NodeStacks many{.number = 1};
    for (int rank = 0; rank < 128; ++rank) {
      many.workers.push_back({.rank = rank, .pid = 1, .place = std::string(500, 'p')});
      many.workers.back().frames.assign(100, std::string(500, 'f'));
    }
    std::string text = encode(many);
    CHECK(text.size() <= kMaxStacksBytes);
    CHECK(decode_stacks(text, 128)->workers.size() == 128);
    many.workers.resize(4);
    CHECK(decode_stacks(encode(many), 4)->workers[3].frames.size() == kMaxFrames);
    many.workers.resize(100'000);
    CHECK(encode(many).size() <= kMaxStacksBytes);
  }

  TEST_CASE("what a stranger has written is quoted, or nothing") {
    auto read = decode_stacks(
        R"({"number":1,"workers":[{"rank":0,"pid":1,"place":"\u001b[2J","frames":["a\nb",1,"c"]}]})",
        8);
    REQUIRE(read);
    CHECK(read->workers[0].place == "\\x1b[2J");
    CHECK(read->workers[0].frames == std::vector<std::string>{"a\\x0ab"});
    for (const char* text :
         {"", "[]", "{}", R"({"number":-1,"workers":[]})", R"({"number":1})",
          R"({"number":1,"workers":[1]})", R"({"number":1,"workers":[{"rank":-1,"pid":1}]})"})
      CHECK_MESSAGE(!decode_stacks(text, 8), text);
    CHECK_FALSE(decode_stacks(std::string(kMaxStacksBytes + 1, ' '), 8));
  }

  TEST_CASE("a target names the run, whatever it is called, and maybe a rank") {
    for (const char* run : {"job", "a/b c%2F?\xc3\xa4", ""}) {
      auto target = stacks_target_of(to_string(StacksTarget{.run = run, .rank = 7}));
      REQUIRE(target);
      CHECK(target->run == run);
      CHECK(target->rank == 7);
    }
    CHECK(to_string(StacksTarget{.run = "a/b"}) == "/stacks/a%2Fb");
    CHECK_FALSE(stacks_target_of("/stacks/a")->rank);
    for (const char* other : {"/stacks", "/status", "/stacks/a/", "/stacks/a/-1", "/stacks/a/1/2",
                              "/stacks/a%2", "/stacks/a%zz"})
      CHECK_MESSAGE(!stacks_target_of(other), other);
  }
}

TEST_SUITE("rendezvous/decide/stack_inquiry") {
  TEST_CASE("all nodes with workers are asked, once in a while, whoever asks") {
    Place place;
    CHECK(place.wants() == Asked{"a 1", "b 1"});
    place.now.mono += coordinator::kStacksPeriod - 1ms;
    CHECK(place.wants().empty());
    CHECK(place.wants(1).empty());
    CHECK(place.page()["next_in_ms"] == 1);
    place.now.mono += 1ms;
    CHECK(place.wants() == Asked{"a 2", "b 2"});
  }

  TEST_CASE("for one rank its node alone is asked") {
    Place place;
    CHECK(place.wants(3) == Asked{"b 1"});
    place.now.mono += coordinator::kStacksPeriod;
    CHECK(place.wants(0) == Asked{"a 2"});
    place.now.mono += coordinator::kStacksPeriod;
    CHECK(place.wants(4).empty());
    CHECK(place.page()["number"] == 2);
  }

  TEST_CASE("nobody is asked while no workers run, or while they are looked at already") {
    Place place;
    place.on(
        runs::event::Arrived{{.run = "job",
                              .node = "a",
                              .request = request::Failed{.failure = {.status = {.exit_code = 1}},
                                                         .wait = TimedOutWait{}}}});
    CHECK(place.wants().empty());
    Place stopping;
    stopping.on(runs::event::Arrived{
        {.run = "job",
         .node = "a",
         .request = request::Failed{.failure = {.status = {.exit_code = 1}}}}});
    CHECK(stopping.wants().empty());
    CHECK(stopping.page()["is_training"] == false);
    stopping.on(runs::event::StacksWanted{.run = "other"});
    CHECK_FALSE(stopping.state.runs.contains("other"));
    auto nothing = [](const std::string&) { return std::string(); };
    CHECK_FALSE(stacks_json(stopping.state, "other", nothing, stopping.now.mono));
  }

  TEST_CASE("the page has the answers to this request, and who has not answered") {
    Place place;
    place.wants();
    CHECK(place.page()["nodes"][0]["has_answered"] == false);
    NodeStacks answer = some();
    answer.number = 1;
    place.said["a"] = encode(answer);
    answer.number = 0;
    place.said["b"] = encode(answer);  // to another one
    Json page = place.page();
    CHECK(page["nodes"][0]["has_answered"] == true);
    CHECK(page["nodes"][0]["stacks"][0]["in"] == "all_reduce");
    CHECK(page["nodes"][1]["has_answered"] == false);
    CHECK(page["nodes"][1]["base_rank"] == 2);
    CHECK(page["nodes"][1]["stacks"].empty());
    CHECK(page["rank"].is_null());
  }
}
