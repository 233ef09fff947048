// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/formats/shards.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "worker/checkpoint/formats/whole_number.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;

Error damaged(const std::string& sentence) {
  return Error{Errc::Protocol, std::string(kShardsName) + ": " + sentence};
}

// What is wrong with the pieces; empty when they are all rows, in order.
std::string problem_of(const ShardedTensor& tensor) {
  std::int64_t next = 0;
  for (const Piece& piece : tensor.pieces) {
    if (piece.begin != next || piece.end < piece.begin) {
      return "row " + std::to_string(next) + " is not where " + piece.file + " begins, at " +
             std::to_string(piece.begin);
    }
    next = piece.end;
  }
  const std::int64_t rows = rows_of(tensor.shape);
  if (next == rows && !tensor.pieces.empty()) return "";
  return "there are " + std::to_string(next) + " of " + std::to_string(rows) + " rows";
}

// `total` * `rank` / `world_size`, without overflow.
std::uint64_t boundary(std::uint64_t total, int rank, int world_size) {
  const auto number = static_cast<std::uint64_t>(rank);
  const auto count = static_cast<std::uint64_t>(world_size);
  return total / count * number + total % count * number / count;
}

// The first row of a tensor that begins at or after `boundary`; it lies from `begin` on.
std::int64_t row_at(std::uint64_t boundary, std::uint64_t begin, std::uint64_t row_bytes,
                    std::int64_t rows) {
  if (boundary <= begin) return 0;
  const std::uint64_t row = (boundary - begin + row_bytes - 1) / row_bytes;
  return row >= static_cast<std::uint64_t>(rows) ? rows : static_cast<std::int64_t>(row);
}

Json to_json(const ShardedTensor& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) pieces.push_back({piece.file, piece.begin, piece.end});
  return {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"pieces", pieces}};
}

ShardedTensor tensor_from(const Json& json) {
  ShardedTensor tensor{.dtype = json.at("dtype").get<std::string>(), .shape = {}, .pieces = {}};
  for (const Json& size : json.at("shape")) {
    tensor.shape.push_back(whole_number<std::int64_t>(size));
  }
  for (const Json& piece : json.at("pieces")) {
    tensor.pieces.push_back({.file = piece.at(0).get<std::string>(),
                             .begin = whole_number<std::int64_t>(piece.at(1)),
                             .end = whole_number<std::int64_t>(piece.at(2))});
  }
  return tensor;
}

}  // namespace

std::int64_t rows_of(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : shape[0];
}

std::string shard_name(const std::string& part, int rank, int world_size) {
  std::ostringstream name;
  name << part << std::setfill('0') << '-' << std::setw(5) << rank + 1 << "-of-" << std::setw(5)
       << world_size;
  return name.str();
}

std::vector<RowShare> share_of(const std::vector<StoredTensor>& tensors, int rank, int world_size) {
  std::uint64_t total = 0;
  for (const StoredTensor& tensor : tensors) {
    total += byte_count(tensor.dtype, tensor.shape).value_or(0);
  }
  const std::uint64_t first = boundary(total, rank, world_size);
  const std::uint64_t last = boundary(total, rank + 1, world_size);
  std::vector<RowShare> shares;
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = byte_count(tensors[i].dtype, tensors[i].shape).value_or(0);
    const std::int64_t rows = rows_of(tensors[i].shape);
    if (bytes == 0) {
      if (rank == 0) shares.push_back({.tensor = i, .begin = 0, .end = rows});
      continue;
    }
    const std::uint64_t row_bytes = bytes / static_cast<std::uint64_t>(rows);
    const RowShare share{.tensor = i,
                         .begin = row_at(first, place, row_bytes, rows),
                         .end = row_at(last, place, row_bytes, rows)};
    if (share.begin < share.end) shares.push_back(share);
    place += bytes;
  }
  return shares;
}

Result<Shards> merge_shards(const std::vector<Shards>& of_ranks) {
  Shards all;
  for (const Shards& own : of_ranks) {
    for (const auto& [part, tensors] : own) {
      for (const auto& [name, tensor] : tensors) {
        auto [found, is_new] = all[part].try_emplace(name, tensor);
        if (is_new) continue;
        ShardedTensor& merged = found->second;
        if (merged.dtype != tensor.dtype || merged.shape != tensor.shape) {
          return Error{Errc::InvalidInput,
                       "the ranks have '" + name + "' of the " + part + " in different shapes"};
        }
        merged.pieces.insert(merged.pieces.end(), tensor.pieces.begin(), tensor.pieces.end());
      }
    }
  }
  for (auto& [part, tensors] : all) {
    for (auto& [name, tensor] : tensors) {
      std::sort(tensor.pieces.begin(), tensor.pieces.end(), [](const Piece& a, const Piece& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
      const std::string problem = problem_of(tensor);
      if (problem.empty()) continue;
      return Error{Errc::InvalidInput, "the ranks have not the same tensors: of '" + name +
                                           "' of the " + part + ", " + problem};
    }
  }
  return all;
}

std::string to_json(const Shards& shards) {
  Json parts = Json::object();
  for (const auto& [part, tensors] : shards) {
    Json& list = parts[part] = Json::object();
    for (const auto& [name, tensor] : tensors) list[name] = to_json(tensor);
  }
  return Json{{"format", kFormat}, {"parts", parts}}.dump() + "\n";
}

Result<Shards> parse_pieces(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != kFormat) {
      return damaged("format " + json["format"].dump() + " is not known here");
    }
    Shards shards;
    for (const auto& [part, tensors] : json.at("parts").items()) {
      for (const auto& [name, tensor] : tensors.items()) {
        shards[part][name] = tensor_from(tensor);
      }
    }
    return shards;
  } catch (const Json::exception&) {
    return damaged("it is no JSON, or lacks a field");
  } catch (const std::out_of_range&) {
    return damaged("it has a number that is none, or too large");
  }
}

Result<Shards> parse_shards(std::string_view text) {
  Result<Shards> shards = parse_pieces(text);
  if (!shards) return shards;
  for (const auto& [part, tensors] : *shards) {
    for (const auto& [name, tensor] : tensors) {
      const std::string problem = problem_of(tensor);
      if (!problem.empty()) return damaged("of '" + name + "', " + problem);
    }
  }
  return shards;
}

}  // namespace ddprun::ddp
