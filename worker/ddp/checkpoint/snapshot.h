// SPDX-License-Identifier: BSD-3-Clause
//
// A training program's state at one moment, copied so that training can go on while it is written.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "worker/ddp/checkpoint/checkpointer.h"
#include "worker/ddp/checkpoint/manifest.h"
#include "worker/ddp/checkpoint/tensor_file.h"

namespace ddprun::ddp {

inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";
inline constexpr char kStateFile[] = "state.json";
inline const std::string kSaving = "save a checkpoint: ";  // how a failure's sentence begins

// Parameters and buffers, under all of their names.
std::vector<NamedTensor> model_tensors(const torch::nn::Module& model);

struct Snapshot {
  Manifest manifest;  // without its files
  EncodedTensors model;
  std::optional<EncodedTensors> optimizer;
  std::string state_json;
};

// Copies states, always into the same memory: touching new pages costs three times the copying.
//
// A snapshot refers to that memory, so it must be written before the next is taken.
class SnapshotTaker {
 public:
  // Fails as optimizer_tensors() and encode_tensors() do.
  Result<Snapshot> take(const TrainingState& state, int world_size);

 private:
  Result<EncodedTensors> staged(const char* file, const std::vector<NamedTensor>& tensors);

  std::map<std::string, at::Tensor> memory_;  // by file and tensor name
};

struct WriteOutcome {
  std::string problem;  // why the checkpoint could not be written; empty when it was
  std::string notice;   // what went wrong afterwards, with the checkpoint written

  // Those of the two that there are.
  std::vector<std::string> sentences() const;
};

// Makes `snapshot` a checkpoint in `directory`, then removes old ones.
WriteOutcome write(const std::filesystem::path& directory, int keep_last, const Snapshot& snapshot);

}  // namespace ddprun::ddp
