// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/checkpoint/checkpointer.h"

#include <ATen/ATen.h>

#include <future>
#include <iostream>
#include <nlohmann/json.hpp>

#include "worker/ddp/checkpoint/directory.h"
#include "worker/ddp/checkpoint/optimizer_state.h"
#include "worker/ddp/checkpoint/snapshot.h"
#include "worker/ddp/checkpoint/tensor_file.h"
#include "worker/ddp/verification.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

using TensorMap = std::map<std::string, at::Tensor>;

// A checkpoint as read: every file whole and in its format.  That it fits is not known yet.
struct Loaded {
  fs::path path;
  TensorMap model;
  std::optional<TensorMap> optimizer;
  Json state;
};

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
    Result<TensorMap> tensors = decode_tensors(std::move(*content));
    if (!tensors) {
      return Error{tensors.error().code,
                   path.string() + ": " + entry.name + ": " + tensors.error().context};
    }
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

// Takes a snapshot; LibTorch's exceptions (no memory) become a failure, so that rank 0 does not
// leave the others waiting.
Result<Snapshot> take(SnapshotTaker& taker, const TrainingState& state, int world_size) {
  try {
    return taker.take(state, world_size);
  } catch (const std::exception& error) {
    return Error{Errc::LimitExceeded, std::string("copy the state: ") + error.what()};
  }
}

}  // namespace

// Rank 0's part of a save.
struct Checkpointer::Writer {
  SnapshotTaker taker;
  std::future<WriteOutcome> under_way;

  // The outcome of the save under way, when there is one; waits for it.
  WriteOutcome finish() { return under_way.valid() ? under_way.get() : WriteOutcome{}; }
};

Checkpointer::Checkpointer(ProcessGroup group, CheckpointerOptions options)
    : group_(std::move(group)), options_(std::move(options)) {
  if (!options_.notify) {
    options_.notify = [](const std::string& sentence) { std::cerr << sentence << std::endl; };
  }
  if (group_.rank() != 0) return;
  writer_ = std::make_unique<Writer>();
  sweep_unfinished(options_.directory);
}

Checkpointer::~Checkpointer() {
  if (!writer_) return;
  for (const std::string& sentence : writer_->finish().sentences()) options_.notify(sentence);
}

void Checkpointer::save(const TrainingState& state) {
  wait();
  std::string problem;
  if (writer_) {
    // What a program gets wrong, such as an optimizer whose state cannot be saved, is not
    // tolerated.
    Result<Snapshot> snapshot = take(writer_->taker, state, group_.world_size());
    if (snapshot) {
      writer_->under_way =
          std::async(std::launch::async,
                     [directory = options_.directory, keep_last = options_.keep_last,
                      taken = std::move(*snapshot)] { return write(directory, keep_last, taken); });
    } else {
      problem = kSaving + to_string(snapshot.error());
    }
  }
  throw_first_problem(group_, problem);
  if (!options_.asynchronous) wait();
}

void Checkpointer::wait() {
  std::string problem;
  if (writer_) {
    WriteOutcome outcome = writer_->finish();
    if (!options_.tolerate_failures) problem = std::exchange(outcome.problem, "");
    for (const std::string& sentence : outcome.sentences()) options_.notify(sentence);
  }
  throw_first_problem(group_, problem);
}

std::optional<Resumed> Checkpointer::resume(const TrainingState& state) {
  wait();
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
