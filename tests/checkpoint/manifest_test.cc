// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/manifest.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace {

using ddprun::ddp::Manifest;
using ddprun::ddp::parse_manifest;
using ddprun::ddp::to_json;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

const Manifest kManifest{.step = 12,
                         .world_size = 3,
                         .torch_version = "2.15.0",
                         .generation = {.run_uuid = "node0-7f3.1", .round = 4},
                         .metric = 0.25,
                         .files = {{"model.safetensors", 1000, 0xDEADBEEF}, {"state.json", 7, 1}}};

}  // namespace

TEST_SUITE("ddp/checkpoint/manifest") {
  TEST_CASE("what is written is read back") {
    CHECK(parse_manifest(to_json(kManifest)).value() == kManifest);
  }

  TEST_CASE("the manifest of a sharded checkpoint of thousands of ranks has a line for each file") {
    Manifest large = kManifest;
    for (int rank = 0; rank < 20'000; ++rank)
      large.files.push_back({"model-" + std::to_string(rank) + "-of-20000.safetensors", 1, 2});
    const std::string text = to_json(large);
    CHECK(std::count(text.begin(), text.end(), '\n') < 20'020);
    CHECK(parse_manifest(text).value() == large);
    large.files.clear();
    CHECK(parse_manifest(to_json(large)).value() == large);
  }

  TEST_CASE("a manifest from before rounds were written is read") {
    std::string old = replaced(to_json(kManifest), "  \"round\": 4,\n", "");
    Manifest manifest =
        parse_manifest(replaced(old, "  \"run_uuid\": \"node0-7f3.1\",\n", "")).value();
    CHECK(manifest.generation == ddprun::ddp::Generation{});
    CHECK(manifest.step == 12);
    CHECK(!parse_manifest(old));  // of which round?
    CHECK(!parse_manifest(replaced(to_json(kManifest), "\"round\": 4", "\"round\": \"4\"")));
  }

  TEST_CASE("a manifest that lacks something, or points outside its folder, is refused") {
    const std::string good = to_json(kManifest);
    auto newer = parse_manifest(replaced(good, "\"format\": 1", "\"format\": 2"));
    CHECK(newer.error().context == "it has format 2, of a newer ddprun; this one reads format 1");
    CHECK(newer.error().code == ddprun::make_error_code(ddprun::Errc::NotSupported));
    CHECK(parse_manifest(replaced(good, "\"format\": 1", "\"format\": 0")).error().context ==
          "manifest: format 0 is not known here");
    CHECK(parse_manifest(replaced(good, "state.json", "../state.json")).error().context ==
          "manifest: '../state.json' is no plain file name");
    CHECK(!parse_manifest(replaced(good, "state.json", "..")));
    CHECK(!parse_manifest(replaced(good, "\"step\": 12", "\"step\": \"12\"")));
    for (const char* number : {"-1.5", "2.0", "1e103", "99999999999999999999", "null"}) {
      CHECK(!parse_manifest(replaced(good, "\"step\": 12", std::string("\"step\": ") + number)));
    }
    CHECK(!parse_manifest(replaced(good, "\"crc32c\": ", "\"crc32c\": 9999999999")));
    CHECK(!parse_manifest(replaced(good, "\"crc32c\": ", "\"crc32c\": -")));
    CHECK(!parse_manifest(replaced(good, "\"world_size\"", "\"worlds\"")));
    CHECK(!parse_manifest(replaced(good, "\"size_bytes\"", "\"size\"")));
    CHECK(!parse_manifest(""));
    CHECK(!parse_manifest("[]"));
    CHECK(!parse_manifest(std::string(100'000, '[')));
    for (std::size_t size = 0; size + 2 < good.size(); ++size) {
      CHECK(!parse_manifest(good.substr(0, size)));
    }
  }
}
