// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/shards.h"

#include <doctest/doctest.h>

#include <numeric>

using namespace ddprun;
using namespace ddprun::ddp;

namespace {

std::vector<StoredTensor> tensors_of(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<StoredTensor> tensors;
  for (const auto& shape : shapes) tensors.push_back({.name = {}, .dtype = "F32", .shape = shape});
  return tensors;
}

// The bytes of what a rank writes.
std::uint64_t bytes_of(const std::vector<StoredTensor>& tensors,
                       const std::vector<RowShare>& shares) {
  std::uint64_t bytes = 0;
  for (const RowShare& share : shares) {
    std::vector<std::int64_t> shape = tensors[share.tensor].shape;
    if (!shape.empty()) shape[0] = share.end - share.begin;
    bytes += byte_count("F32", shape).value();
  }
  return bytes;
}

Shards one(const std::string& file, std::int64_t begin, std::int64_t end) {
  return {{"model", {{"w", {"F32", {10, 2}, {{file, begin, end}}}}}}};
}

}  // namespace

TEST_SUITE("checkpoint/shards") {
  TEST_CASE("the ranks write all rows once, in parts of about one size") {
    const std::vector<std::vector<std::vector<std::int64_t>>> kModels = {
        {{100, 3}, {7}, {}, {4, 5, 2}},
        {{}},
        {{0, 4}, {3, 0}, {2}},
        {{1, 1000}, {1, 1000}, {1, 1000}},
        {}};
    for (const auto& shapes : kModels) {
      const std::vector<StoredTensor> tensors = tensors_of(shapes);
      for (int world_size : {1, 2, 3, 7, 200}) {
        std::vector<std::int64_t> next(tensors.size(), 0);
        std::vector<int> pieces(tensors.size(), 0);
        const std::uint64_t total = bytes_of(tensors, share_of(tensors, 0, 1));
        for (int rank = 0; rank < world_size; ++rank) {
          const std::vector<RowShare> shares = share_of(tensors, rank, world_size);
          for (const RowShare& share : shares) {
            CHECK(share.begin == next[share.tensor]);
            next[share.tensor] = share.end;
            ++pieces[share.tensor];
          }
          std::uint64_t widest = 0;
          for (const StoredTensor& tensor : tensors) {
            const auto rows = static_cast<std::uint64_t>(rows_of(tensor.shape));
            if (rows > 0) {
              widest = std::max(widest, byte_count("F32", tensor.shape).value() / rows);
            }
          }
          CHECK(bytes_of(tensors, shares) <=
                total / static_cast<std::uint64_t>(world_size) + widest + 1);
        }
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          CHECK(next[i] == rows_of(tensors[i].shape));
          CHECK(pieces[i] >= 1);
        }
      }
    }
    CHECK(shard_name("model", 0, 4) == "model-00001-of-00004");
  }

  TEST_CASE("what the ranks have written is put together, or refused") {
    const Result<Shards> merged = merge_shards({one("b", 4, 10), one("a", 0, 4)});
    REQUIRE(merged.has_value());
    const std::vector<Piece> pieces{{"a", 0, 4}, {"b", 4, 10}};
    CHECK((merged->at("model").at("w").pieces == pieces));
    CHECK((parse_shards(to_json(*merged)).value() == *merged));

    auto problem = [](const std::vector<Shards>& of_ranks) {
      Result<Shards> result = merge_shards(of_ranks);
      return result ? "" : to_string(result.error());
    };
    CHECK(problem({one("a", 0, 4)}) ==
          "the ranks have not the same tensors: of 'w' of the model, there are 4 of 10 rows");
    CHECK(problem({one("a", 0, 4), one("b", 5, 10)}) ==
          "the ranks have not the same tensors: of 'w' of the model, row 4 is not where b begins, "
          "at 5");
    CHECK(problem({one("a", 0, 6), one("b", 5, 10)}) != "");
    Shards other = one("b", 4, 10);
    other["model"]["w"].shape = {10, 3};
    CHECK(problem({one("a", 0, 4), other}) ==
          "the ranks have 'w' of the model in different shapes");
  }

  TEST_CASE("an index that is damaged is refused") {
    auto problem = [](const std::string& text) {
      Result<Shards> result = parse_shards(text);
      return result ? "" : to_string(result.error());
    };
    CHECK(problem("{") == "shards.json: it is no JSON, or lacks a field");
    CHECK(problem(R"({"format": 2, "parts": {}})") == "shards.json: format 2 is not known here");
    CHECK(problem(R"({"format": 1, "parts": {"model": {"w": {"dtype": 3}}}})") ==
          "shards.json: it is no JSON, or lacks a field");
    CHECK(problem(R"({"format": 1, "parts": 7})") != "");
    CHECK(problem(to_json(one("a", 0, 4))) == "shards.json: of 'w', there are 4 of 10 rows");
    CHECK((parse_pieces(to_json(one("a", 2, 4))).value() == one("a", 2, 4)));
  }
}
