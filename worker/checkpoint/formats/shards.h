// SPDX-License-Identifier: BSD-3-Clause
//
// A checkpoint that all ranks have written, each a part: which tensor, or which rows of it, lies in
// which file.  Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/stored_tensor.h"

namespace ddprun::ddp {

// The file of a checkpoint that says so; without it, the checkpoint is one that rank 0 has written.
inline constexpr char kShardsName[] = "shards.json";

// Some rows of a tensor (along its first dimension), which `file` has under the tensor's name.
struct Piece {
  std::string file;
  std::int64_t begin = 0;
  std::int64_t end = 0;  // exclusive

  friend bool operator==(const Piece&, const Piece&) = default;
};

struct ShardedTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;  // in the order of the rows, without gaps

  friend bool operator==(const ShardedTensor&, const ShardedTensor&) = default;
};

// By part ("model", "optimizer"), then by name.
using Shards = std::map<std::string, std::map<std::string, ShardedTensor>>;

// 1 for a tensor without dimensions.
std::int64_t rows_of(const std::vector<std::int64_t>& shape);

// "model-00001-of-00004", without the ending: the file of rank 0 of 4.
std::string shard_name(const std::string& part, int rank, int world_size);

struct RowShare {
  std::size_t tensor = 0;  // its index
  std::int64_t begin = 0;  // its rows
  std::int64_t end = 0;

  friend bool operator==(const RowShare&, const RowShare&) = default;
};

// What `rank` writes of tensors that all ranks have: about as many bytes as every other rank, one
// after the other, cut between two rows.  Of `tensors` dtype and shape count.
std::vector<RowShare> share_of(const std::vector<StoredTensor>& tensors, int rank, int world_size);

// What all ranks have written, from what each has; the pieces of a tensor in any order.  Fails with
// Errc::InvalidInput for a tensor that two ranks have in different shapes, or not wholly.
Result<Shards> merge_shards(const std::vector<Shards>& of_ranks);

std::string to_json(const Shards& shards);

// Fails with Errc::Protocol for what to_json() does not write.
Result<Shards> parse_pieces(std::string_view text);

// The same of all ranks; fails for a tensor whose pieces have gaps, too.
Result<Shards> parse_shards(std::string_view text);

}  // namespace ddprun::ddp
