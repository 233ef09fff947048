// SPDX-License-Identifier: BSD-3-Clause
//
// The files of all nodes on request: who is asked for what, how pieces are written, and who reads
// them.
#include "rendezvous/decide/bundle_inquiry.h"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "rendezvous/decide/bundle_piece.h"
#include "rendezvous/decide/runs.h"

using namespace ddprun;
using namespace ddprun::rendezvous;
using namespace std::chrono_literals;
using Json = nlohmann::json;
using Kind = BundleTarget::Kind;
using Asked = std::vector<std::string>;

namespace {

// A host of one run with nodes a and b, which give files, and old, which does not.
struct Place {
  runs::State state;
  std::map<std::string, std::string> said;
  Asked asked;  // "a 1 piece 0 of 500", with the number
  Now now{.mono = MonoTime(1h)};

  Place() {
    for (std::string node : {"a", "b", "old"}) {
      arrives(node, request::Join{.host = node,
                                  .address = node,
                                  .pid = 17,
                                  .participant = {.local_world_size = 2},
                                  .settings = {.min_nodes = 3, .max_nodes = 3},
                                  .policy = {.max_restarts = 1},
                                  .store_port = 1000,
                                  .run_uuid = "uuid",
                                  .gives_bundle = node != "old"});
    }
  }
  void arrives(const std::string& node, Request request) {
    on(runs::event::Arrived{{.run = "job", .node = node, .request = std::move(request)}});
  }
  void on(const runs::Event& event) {
    auto next = runs::step(std::move(state), event, now);
    state = std::move(next.state);
    for (const auto& action : next.actions) {
      const auto* send = std::get_if<runs::action::Send>(&action);
      const auto* take = send ? std::get_if<command::TakeBundle>(&send->command) : nullptr;
      if (take)
        asked.push_back(send->node + " " + std::to_string(take->number) + " piece " +
                        std::to_string(take->piece) + " of " + std::to_string(take->most_bytes));
    }
  }
  Asked wants(BundleTarget target) {
    asked.clear();
    target.run = "job";
    on(runs::event::BundleWanted{target});
    return asked;
  }
  Asked begins(std::uint64_t bytes) { return wants({.kind = Kind::Begin, .most_bytes = bytes}); }
  BundleTexts texts() {
    return [this](const std::string& node) { return said[node]; };
  }
  Json page(std::uint64_t number_before = 0) {
    auto text = bundle_json(state, "job", number_before, texts(), now.mono);
    REQUIRE(text);
    return Json::parse(*text);
  }
  std::optional<std::string> piece(std::uint64_t number, const std::string& node,
                                   std::uint64_t piece) {
    return bundle_piece_text(
        state, {.kind = Kind::Piece, .run = "job", .number = number, .node = node, .piece = piece},
        texts());
  }
};

}  // namespace

TEST_SUITE("rendezvous/bundle_inquiry") {
  TEST_CASE("a target is read as it was written, and no other is one") {
    for (const BundleTarget& target : {
             BundleTarget{.run = "a/b c"},
             BundleTarget{.kind = Kind::Begin, .run = "job", .most_bytes = 1 << 20},
             BundleTarget{.kind = Kind::Over, .run = "job", .number = 3},
             BundleTarget{
                 .kind = Kind::Piece, .run = "job", .number = 3, .node = "n/1 x.0", .piece = 2},
         }) {
      CAPTURE(to_string(target));
      CHECK(bundle_target_of(to_string(target)) == target);
    }
    CHECK(to_string(BundleTarget{.run = "a/b"}) == "/bundle/a%2Fb");
    for (const char* target : {"/status", "/bundle", "/bundle/%zz", "/bundle/job/", "/bundle/job/x",
                               "/bundle/job/-1", "/bundle/job/3/done", "/bundle/job/3/n/0",
                               "/bundle/job/3/n/", "/bundle/job/3/n/257", "/bundle/job/3/n/1/2"})
      CHECK_FALSE(bundle_target_of(target));
  }

  TEST_CASE("each node gets its share, and one that does not know the request is named") {
    Place place;
    CHECK(place.begins(1 << 20) == Asked{"a 1 piece 0 of 524288", "b 1 piece 0 of 524288"});
    Json page = place.page();
    CHECK(page["has_begun"] == true);
    CHECK(page["node_bytes"] == 524288);
    REQUIRE(page["nodes"].size() == 3);
    CHECK(page["nodes"][0]["was_asked"] == true);
    CHECK(page["nodes"][0]["why_not"].is_null());
    CHECK(page["nodes"][0]["has_answered"] == false);
    CHECK(page["nodes"][2]["host"] == "old");
    CHECK(page["nodes"][2]["was_asked"] == false);
    CHECK(page["nodes"][2]["why_not"] == "its ddprun is an older one, which gives no files");
    CHECK_FALSE(bundle_json(place.state, "other", 0, place.texts(), place.now.mono));
  }

  TEST_CASE("a share is never tiny nor huge") {
    Place place;
    CHECK(place.begins(1).front() == "a 1 piece 0 of " + std::to_string(kLeastNodeBundle));
    place.wants({.kind = Kind::Over, .number = 1});
    CHECK(place.begins(std::uint64_t{1} << 40).front() ==
          "a 2 piece 0 of " + std::to_string(kMostNodeBundle));
  }

  TEST_CASE("others wait until it is over, or nobody goes on with it") {
    Place place;
    place.begins(1 << 20);
    place.now.mono += 10s;
    CHECK(place.begins(1 << 20).empty());
    CHECK(place.page(1)["has_begun"] == false);
    CHECK(place.page(1)["next_in_ms"] == 5000);
    CHECK(place.wants({.kind = Kind::Piece, .number = 1, .node = "b", .piece = 1}) ==
          Asked{"b 1 piece 1 of 524288"});
    place.now.mono += 10s;
    CHECK(place.begins(1 << 20).empty());
    // The nodes are told that they need not hold theirs any longer.
    CHECK(place.wants({.kind = Kind::Over, .number = 1}) ==
          Asked{"a 1 piece 0 of 0", "b 1 piece 0 of 0"});
    CHECK(place.wants({.kind = Kind::Over, .number = 1}).empty());
    CHECK(place.wants({.kind = Kind::Piece, .number = 1, .node = "b", .piece = 2}).empty());
    CHECK(place.begins(1 << 20).size() == 2);
    place.now.mono += coordinator::kBundlePeriod;
    CHECK(place.begins(1 << 20).size() == 2);
    CHECK(place.page(2)["number"] == 3);
  }

  TEST_CASE("only nodes that were asked are asked for pieces, and of the last number") {
    Place place;
    place.begins(1 << 20);
    for (const char* node : {"old", "none"})
      CHECK(place.wants({.kind = Kind::Piece, .number = 1, .node = node, .piece = 1}).empty());
    CHECK(place.wants({.kind = Kind::Piece, .number = 2, .node = "a", .piece = 1}).empty());
    CHECK_FALSE(place.piece(2, "a", 1));
    CHECK_FALSE(place.piece(1, "old", 1));
  }

  TEST_CASE("a node whose connection is lost is named and not asked") {
    Place place;
    place.arrives("b", request::Lost{});
    CHECK(place.begins(1 << 20) == Asked{"a 1 piece 0 of 1048576"});
    CHECK(place.page()["nodes"][1]["why_not"] == "its connection is lost");
  }

  TEST_CASE("what a node has said is shown if it answers this request") {
    Place place;
    place.begins(1 << 20);
    std::string packed(kBundlePieceBytes + 5, 'x');
    place.said["a"] = encode(bundle_piece_of(packed, 1, 0));
    place.said["b"] = encode(bundle_piece_of(packed, 7, 0));
    Json page = place.page();
    CHECK(page["nodes"][0]["has_answered"] == true);
    CHECK(page["nodes"][0]["bytes"] == packed.size());
    CHECK(page["nodes"][1]["has_answered"] == false);
    CHECK(place.piece(1, "a", 1) == "");  // not yet
    place.said["a"] = encode(bundle_piece_of(packed, 1, 2));
    CHECK(place.piece(1, "a", 1) == "");
    auto text = place.piece(1, "a", 2);
    REQUIRE(text);
    CHECK(decode_bundle_piece(*text)->data == "xxxxx");
    place.said["a"] = "rubbish";
    CHECK(place.piece(1, "a", 2) == "");
  }

  TEST_CASE("pieces have all bytes once, and rubbish is none") {
    CHECK(bundle_pieces(0) == 0);
    CHECK(bundle_pieces(kBundlePieceBytes) == 1);
    CHECK(bundle_pieces(kBundlePieceBytes + 1) == 2);
    std::string packed(2 * kBundlePieceBytes + 1, 'x');
    std::string all;
    for (std::uint64_t piece = 0; piece <= 4; ++piece) {
      auto said = bundle_piece_of(packed, 3, piece);
      CHECK(decode_bundle_piece(encode(said)) == said);
      all += said.data;
    }
    CHECK(all == packed);
    for (std::string text :
         {"", "bundle1 1 2 3", "bundle2 1 2 3\n", "bundle1 1 2\n", "bundle1 1 2 3 4\n",
          "bundle1 1 2 -3\n", "bundle1  1 2 3\n", "bundle1 1 2 99999999999\n"})
      CHECK_FALSE(decode_bundle_piece(text));
    CHECK_FALSE(decode_bundle_piece("bundle1 1 2 3\n" + std::string(kBundlePieceBytes + 1, 'x')));
    CHECK_FALSE(decode_bundle_piece(std::string(200, ' ') + "\n"));
  }
}
