// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/snapshot.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "worker/ddp/checkpoint/directory.h"
#include "worker/ddp/checkpoint/optimizer_state.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;

Json state_json(const TrainingState& state) {
  Json json = Json::object();
  if (state.progress) {
    json["progress"] = {{"step", state.progress->step},
                        {"epoch", state.progress->epoch},
                        {"values", state.progress->values}};
  }
  if (state.sampler) {
    const SamplerState& at = state.sampler->state();
    json["sampler"] = {{"seed", at.seed}, {"epoch", at.epoch}, {"consumed", at.consumed}};
  }
  return json;
}

}  // namespace

std::vector<NamedTensor> model_tensors(const torch::nn::Module& model) {
  std::vector<NamedTensor> tensors = named_parameters(model, true);
  for (NamedTensor& buffer : named_buffers(model, true)) tensors.push_back(std::move(buffer));
  return tensors;
}

Result<EncodedTensors> SnapshotTaker::staged(const char* file,
                                             const std::vector<NamedTensor>& tensors) {
  at::NoGradGuard no_grad;
  std::vector<NamedTensor> copies;
  for (const NamedTensor& item : tensors) {
    at::Tensor& memory = memory_[std::string(file) + "/" + item.name];
    if (!memory.defined() || kind_of(memory) != kind_of(item.tensor)) {
      memory = at::empty(item.tensor.sizes(),
                         item.tensor.options().device(at::kCPU).requires_grad(false));
    }
    memory.copy_(item.tensor);
    copies.push_back({item.name, memory});
  }
  return encode_tensors(copies, {{"format", "pt"}});
}

Result<Snapshot> SnapshotTaker::take(const TrainingState& state, int world_size) {
  Snapshot snapshot;
  snapshot.manifest = {.step = state.progress ? state.progress->step : 0,
                       .world_size = world_size,
                       .torch_version = TORCH_VERSION,
                       .files = {}};
  Result<EncodedTensors> model = staged(kModelFile, model_tensors(state.model));
  if (!model) return model.error();
  snapshot.model = std::move(*model);
  if (state.optimizer) {
    Result<std::vector<NamedTensor>> tensors = optimizer_tensors(*state.optimizer, state.model);
    if (!tensors) return tensors.error();
    Result<EncodedTensors> optimizer = staged(kOptimizerFile, *tensors);
    if (!optimizer) return optimizer.error();
    snapshot.optimizer = std::move(*optimizer);
  }
  snapshot.state_json = state_json(state).dump(2) + "\n";
  return snapshot;
}

std::vector<std::string> WriteOutcome::sentences() const {
  std::vector<std::string> all;
  for (const std::string& sentence : {problem, notice}) {
    if (!sentence.empty()) all.push_back(sentence);
  }
  return all;
}

WriteOutcome write(const std::filesystem::path& directory, int keep_last,
                   const Snapshot& snapshot) {
  std::vector<FileContent> files{{kModelFile, snapshot.model.pieces()}};
  if (snapshot.optimizer) files.push_back({kOptimizerFile, snapshot.optimizer->pieces()});
  files.push_back({kStateFile, {snapshot.state_json}});
  try {
    Result<std::filesystem::path> place = publish_checkpoint(directory, snapshot.manifest, files);
    if (!place) return {.problem = kSaving + to_string(place.error()), .notice = {}};
    Result<void> pruned = prune_checkpoints(directory, keep_last);
    return {.problem = {}, .notice = pruned ? "" : to_string(pruned.error())};
  } catch (const std::exception& error) {  // of std::filesystem, or no memory
    return {.problem = kSaving + error.what(), .notice = {}};
  }
}

}  // namespace ddprun::ddp
