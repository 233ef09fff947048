// SPDX-License-Identifier: BSD-3-Clause
//
// One rank's part of a checkpoint that all ranks write (worker/checkpoint/formats/shards.h).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "worker/checkpoint/formats/file_layout.h"
#include "worker/checkpoint/formats/manifest.h"
#include "worker/checkpoint/formats/shards.h"
#include "worker/ddp/tensor_file.h"
#include "worker/ddp/training_state.h"

namespace ddprun::ddp {

// What one rank, or all of them, have written.
struct WrittenShards {
  std::vector<FileEntry> files;
  Shards shards;
};

// As text, to send it to another rank; the other way round it fails with Errc::Protocol.
std::string to_text(const WrittenShards& written);
Result<WrittenShards> written_from(const std::string& text);

// What all ranks have written, from the texts of each.  Fails as merge_shards() does.
Result<WrittenShards> merge(const std::vector<std::string>& texts);

// Writes files, one part after the other, always by way of the same memory, which is as large as
// this rank's share of the largest part.
//
// Threads: used from one thread.
class ShardWriter {
 public:
  ShardWriter(TensorFormat format, int rank, int world_size)
      : format_(format), rank_(rank), world_size_(world_size) {}

  // This rank's share of the model's parameters and of the optimizer's state, into `folder`, which
  // is there; of a ZeroRedundancyOptimizer the state of this rank's parameters.  And the `stateful`
  // tensors and those `of_rank` (rank_tensors.h), which are this rank's.  What the ranks may have
  // in different values rank 0 writes alone: buffers, the program's own tensors, learning rates,
  // what is ignored, and all where an object of `stateful` says that the ranks step on their own.
  // The files and their names are on the disk then.  Fails as TensorImage::take() and
  // optimizer_tensors() do, and with the system's code.
  Result<WrittenShards> write(const TrainingState& state, const std::filesystem::path& folder,
                              const std::vector<NamedTensor>& stateful,
                              const std::vector<NamedTensor>& of_rank);

 private:
  // Of a part: what is the same on all ranks, and what may be another on each.
  struct Content {
    std::vector<NamedTensor> equal;
    std::vector<NamedTensor> of_first;
  };
  Content model_content(const TrainingState& state) const;
  Result<void> write_optimizer(const TrainingState& state, const std::filesystem::path& folder,
                               WrittenShards& written);
  Result<void> write_share(const std::string& part, const Content& content,
                           const std::filesystem::path& folder, WrittenShards& written);
  Result<void> write_pieces(const std::string& part, const std::vector<NamedTensor>& pieces,
                            const std::filesystem::path& folder, WrittenShards& written);

  TensorFormat format_;
  int rank_;
  int world_size_;
  TensorImage image_;
};

// The tensors of all parts, from the files by name: in place where one file has all rows, else put
// together in memory.  Fails with Errc::Protocol for a piece that its file has not, or has in
// another shape.
Result<std::map<std::string, TensorMap>> assemble(const Shards& shards,
                                                  const std::map<std::string, TensorMap>& files);

}  // namespace ddprun::ddp
