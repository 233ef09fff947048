// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/checkpointer.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/ddp/checkpoint/directory.h"
#include "worker/ddp/checkpoint/optimizer_state.h"
#include "worker/ddp/checkpoint/tensor_file.h"
#include "worker/ddp/verification.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr char kModelFile[] = "model.safetensors";
constexpr char kOptimizerFile[] = "optimizer.safetensors";
constexpr char kStateFile[] = "state.json";

using TensorMap = std::map<std::string, at::Tensor>;

// A checkpoint as read: every file whole and in its format.  That it fits is not known yet.
struct Loaded {
  fs::path path;
  TensorMap model;
  std::optional<TensorMap> optimizer;
  Json state;
};

std::vector<NamedTensor> model_tensors(const torch::nn::Module& model) {
  std::vector<NamedTensor> tensors = named_parameters(model, true);
  for (NamedTensor& buffer : named_buffers(model, true)) tensors.push_back(std::move(buffer));
  return tensors;
}

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

Result<void> write(const fs::path& directory, int keep_last, int world_size,
                   const TrainingState& state) {
  Result<EncodedTensors> model = encode_tensors(model_tensors(state.model), {{"format", "pt"}});
  if (!model) return model.error();
  std::vector<FileContent> files{{kModelFile, model->pieces()}};

  Result<EncodedTensors> optimizer = EncodedTensors{};
  if (state.optimizer) {
    Result<std::vector<NamedTensor>> tensors = optimizer_tensors(*state.optimizer, state.model);
    if (!tensors) return tensors.error();
    optimizer = encode_tensors(*tensors, {{"format", "pt"}});
    if (!optimizer) return optimizer.error();
    files.push_back({kOptimizerFile, optimizer->pieces()});
  }
  std::string json = state_json(state).dump(2) + "\n";
  files.push_back({kStateFile, {json}});

  Manifest manifest{.step = state.progress ? state.progress->step : 0,
                    .world_size = world_size,
                    .torch_version = TORCH_VERSION,
                    .files = {}};
  Result<fs::path> place = publish_checkpoint(directory, manifest, files);
  if (!place) return place.error();
  return prune_checkpoints(directory, keep_last);
}

Result<Loaded> load(const fs::path& path) {
  Result<Manifest> manifest = inspect_checkpoint(path);
  if (!manifest) return manifest.error();
  Loaded loaded{.path = path, .model = {}, .optimizer = {}, .state = {}};
  for (const FileEntry& entry : manifest->files) {
    Result<std::string> content = read_checkpoint_file(path, entry);
    if (!content) return content.error();
    if (entry.name == kStateFile) {
      loaded.state = Json::parse(*content, nullptr, /*allow_exceptions=*/false);
      continue;
    }
    if (entry.name != kModelFile && entry.name != kOptimizerFile) continue;
    Result<TensorMap> tensors = decode_tensors(*content);
    if (!tensors)
      return Error{tensors.error().code,
                   path.string() + ": " + entry.name + ": " + tensors.error().context};
    if (entry.name == kModelFile) {
      loaded.model = std::move(*tensors);
    } else {
      loaded.optimizer = std::move(*tensors);
    }
  }
  if (!loaded.state.is_object()) {
    return Error{Errc::Protocol, path.string() + ": it has no readable " + kStateFile};
  }
  return loaded;
}

// The newest checkpoint that can be read; tells `notify` of those that cannot.
std::optional<Loaded> load_newest(const fs::path& directory,
                                  const std::function<void(const std::string&)>& notify) {
  for (const FoundCheckpoint& checkpoint : list_checkpoints(directory)) {
    Result<Loaded> loaded = load(checkpoint.path);
    if (loaded) return std::move(*loaded);
    notify("passing over a damaged checkpoint: " + to_string(loaded.error()));
  }
  return std::nullopt;
}

Result<void> restore_model(torch::nn::Module& model, const TensorMap& saved) {
  at::NoGradGuard no_grad;
  std::vector<NamedTensor> wanted = model_tensors(model);
  for (const NamedTensor& item : wanted) {
    auto found = saved.find(item.name);
    if (found == saved.end()) {
      return Error{Errc::InvalidInput, "it has no '" + item.name + "', which the model has"};
    }
    if (kind_of(found->second) != kind_of(item.tensor)) {
      return Error{Errc::InvalidInput, "'" + item.name + "' is " + kind_of(found->second) +
                                           " in it and " + kind_of(item.tensor) + " in the model"};
    }
    at::Tensor(item.tensor).copy_(found->second);
  }
  if (saved.size() != wanted.size()) {
    for (const auto& [name, tensor] : saved) {
      bool is_known = std::any_of(wanted.begin(), wanted.end(),
                                  [&](const NamedTensor& item) { return item.name == name; });
      if (!is_known)
        return Error{Errc::InvalidInput, "it has '" + name + "', which the model has not"};
    }
  }
  return {};
}

Result<void> restore_scalars(const TrainingState& state, const Json& json) {
  try {
    if (state.progress && json.contains("progress")) {
      const Json& saved = json.at("progress");
      *state.progress = Progress{.step = saved.at("step").get<std::int64_t>(),
                                 .epoch = saved.at("epoch").get<std::int64_t>(),
                                 .values = saved.at("values").get<std::map<std::string, double>>()};
    }
    if (state.sampler && json.contains("sampler")) {
      const Json& saved = json.at("sampler");
      return state.sampler->restore({.seed = saved.at("seed").get<std::uint64_t>(),
                                     .epoch = saved.at("epoch").get<std::int64_t>(),
                                     .consumed = saved.at("consumed").get<std::int64_t>()});
    }
    return {};
  } catch (const Json::exception&) {
    return Error{Errc::Protocol, "its state.json lacks a field"};
  }
}

// Puts a checkpoint that is complete on this rank into the program's objects.
Result<void> apply(const TrainingState& state, const TensorMap& model,
                   const std::optional<TensorMap>& optimizer, const Json& json) {
  Result<void> done = restore_model(state.model, model);
  if (done && state.optimizer && optimizer) {
    done = restore_optimizer(*state.optimizer, state.model, *optimizer);
  }
  if (done) done = restore_scalars(state, json);
  return done;
}

// What the other ranks need to know before rank 0 can send them tensors.
Json announcement(const TensorMap& tensors) {
  Json list = Json::array();
  for (const auto& [name, tensor] : tensors) {
    list.push_back({name, static_cast<int>(tensor.scalar_type()), tensor.sizes().vec()});
  }
  return list;
}

// Makes every rank's `tensors` rank 0's.
void share(ProcessGroup& group, TensorMap& tensors) {
  Json list = Json::parse(group.broadcast_text(announcement(tensors).dump()));
  std::vector<at::Tensor> values;
  for (const Json& entry : list) {
    auto name = entry[0].get<std::string>();
    if (group.rank() != 0) {
      tensors[name] = at::empty(entry[2].get<std::vector<std::int64_t>>(),
                                static_cast<at::ScalarType>(entry[1].get<int>()));
    }
    values.push_back(tensors[name]);
  }
  group.broadcast(values);
}

}  // namespace

Checkpointer::Checkpointer(ProcessGroup group, CheckpointerOptions options)
    : group_(std::move(group)), options_(std::move(options)) {
  if (!options_.notify) {
    options_.notify = [](const std::string& sentence) { std::cerr << sentence << std::endl; };
  }
  if (group_.rank() == 0) sweep_unfinished(options_.directory);
}

void Checkpointer::save(const TrainingState& state) {
  std::string problem;
  if (group_.rank() == 0) {
    Result<void> done = write(options_.directory, options_.keep_last, group_.world_size(), state);
    if (!done) problem = "save a checkpoint: " + to_string(done.error());
  }
  throw_first_problem(group_, problem);
}

std::optional<Resumed> Checkpointer::resume(const TrainingState& state) {
  std::optional<Loaded> loaded;
  if (group_.rank() == 0) loaded = load_newest(options_.directory, options_.notify);
  std::string path = group_.broadcast_text(loaded ? loaded->path.string() : "");
  if (path.empty()) return std::nullopt;

  if (!loaded) loaded.emplace();
  loaded->state = Json::parse(group_.broadcast_text(loaded->state.dump()));
  bool has_optimizer = !group_.broadcast_text(loaded->optimizer ? "yes" : "").empty();
  share(group_, loaded->model);
  if (has_optimizer) {
    if (!loaded->optimizer) loaded->optimizer.emplace();
    share(group_, *loaded->optimizer);
  }
  Result<void> done = apply(state, loaded->model, loaded->optimizer, loaded->state);
  throw_first_problem(group_, done ? "" : "resume from " + path + ": " + to_string(done.error()));

  Resumed resumed{.path = path, .progress = {}};
  if (state.progress) resumed.progress = *state.progress;
  return resumed;
}

fs::path choose_run_directory(ProcessGroup& group, const fs::path& base) {
  std::string folder;
  std::string problem;
  if (group.rank() == 0) {
    Result<fs::path> chosen =
        run_directory(base, group.env().run_id, group.env().restart_count > 0);
    if (chosen) {
      folder = chosen->string();
    } else {
      problem = to_string(chosen.error());
    }
  }
  throw_first_problem(group, problem);
  return group.broadcast_text(folder);
}

}  // namespace ddprun::ddp
