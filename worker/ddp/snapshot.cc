// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/snapshot.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <utility>

#include "worker/checkpoint/directory.h"
#include "worker/ddp/optimizer_state.h"
#include "worker/ddp/random_streams.h"
#include "worker/ddp/rank_tensors.h"
#include "worker/ddp/state_json.h"

namespace ddprun::ddp {
namespace {

std::uint64_t bytes_of(const std::vector<FileContent>& files) {
  std::uint64_t bytes = 0;
  for (const FileContent& file : files) {
    for (std::string_view piece : file.pieces) bytes += piece.size();
  }
  return bytes;
}

std::uint64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const NamedTensor& item : tensors) bytes += item.tensor.nbytes();
  return bytes;
}

}  // namespace

void SnapshotTaker::prepare(const TrainingState& state) {
  end_preparation();
  std::vector<std::pair<TensorImage*, std::uint64_t>> sizes;
  auto add = [&](const char* part, std::uint64_t bytes) {
    constexpr std::uint64_t kForTheHeader = 1 << 20;
    sizes.emplace_back(&parts_[part], bytes + kForTheHeader);
  };
  add(kModelPart, bytes_of(model_tensors(state.model)));
  if (state.optimizer) add(kOptimizerPart, expected_bytes(*state.optimizer));
  if (state.tensors) add(kOwnPart, bytes_of(named(*state.tensors)));
  preparation_ = std::async(std::launch::async, [this, sizes = std::move(sizes)] {
    for (auto [image, bytes] : sizes) {
      // What cannot be had now is asked for again, and its lack reported, when it is needed.
      if (!must_stop_preparing_) (void)image->prepare(bytes, must_stop_preparing_);
    }
  });
}

void SnapshotTaker::end_preparation() {
  if (!preparation_.valid()) return;
  must_stop_preparing_ = true;
  preparation_.get();
  must_stop_preparing_ = false;
}

Result<void> SnapshotTaker::take_part(const char* part, const std::vector<NamedTensor>& tensors) {
  taken_.emplace_back(part);
  return parts_[part].take(format_, tensors, {{"format", "pt"}});
}

void SnapshotTaker::begin_take(const TrainingState& state, Manifest about) {
  end_preparation();
  manifest_ = std::move(about);
  manifest_.step = state.progress ? state.progress->step : 0;
  manifest_.torch_version = TORCH_VERSION;
  state_json_ = to_json(state);
  taken_.clear();
}

Result<void> SnapshotTaker::take(const TrainingState& state, Manifest about,
                                 const std::vector<std::vector<at::Tensor>>& random_states,
                                 const std::vector<NamedTensor>& stateful,
                                 const std::vector<NamedTensor>& of_ranks) {
  begin_take(state, std::move(about));
  Result<void> done = take_part(kModelPart, model_tensors(state.model));
  if (done && state.optimizer) {
    Result<std::vector<NamedTensor>> tensors = optimizer_tensors(*state.optimizer, state.model);
    if (!tensors) return tensors.error();
    const OwnState own(*state.optimizer, state.model);  // is among those of the ranks
    std::erase_if(*tensors, [&](const NamedTensor& item) { return own.has(item.name); });
    done = take_part(kOptimizerPart, *tensors);
  }
  if (done && state.tensors) {
    done = take_part(kOwnPart, named(*state.tensors));
  }
  if (done && !stateful.empty()) done = take_part(kStatefulPart, stateful);
  if (done && !of_ranks.empty()) done = take_part(kRanksPart, of_ranks);
  return done ? take_random(random_states) : done;
}

Result<void> SnapshotTaker::take_rest(const TrainingState& state, Manifest about,
                                      const std::vector<std::vector<at::Tensor>>& random_states) {
  begin_take(state, std::move(about));
  return take_random(random_states);
}

Result<void> SnapshotTaker::take_random(const std::vector<std::vector<at::Tensor>>& random_states) {
  if (random_states.empty()) return {};
  std::vector<NamedTensor> tensors;
  for (std::size_t place = 0; place < random_states.size(); ++place) {
    for (std::size_t rank = 0; rank < random_states[place].size(); ++rank) {
      tensors.push_back({random_name(place, static_cast<int>(rank)), random_states[place][rank]});
    }
  }
  return take_part(kRandomPart, tensors);
}

std::vector<std::string> SnapshotTaker::Outcome::sentences() const {
  std::vector<std::string> all;
  for (const std::string& sentence : {problem, of_others, notice}) {
    if (!sentence.empty()) all.push_back(sentence);
  }
  return all;
}

std::vector<FileContent> SnapshotTaker::taken_files() {
  std::vector<FileContent> files;
  for (const std::string& part : taken_) {
    TensorImage& image = parts_[part];
    image.complete();
    files.push_back({part + "." + extension_of(format_), {image.bytes()}, /*is_staged=*/true});
  }
  files.push_back({kStateFile, {state_json_}});
  return files;
}

void SnapshotTaker::look_for_others(const std::filesystem::path& directory) {
  others_.begin(directory);
  const std::string sentence = others_.look(directory, manifest_.generation.run_uuid, written_);
  if (!sentence.empty()) of_others_ = sentence;
}

SnapshotTaker::Outcome SnapshotTaker::conclude(const std::filesystem::path& directory,
                                               const Result<std::filesystem::path>& place,
                                               const Retention& retention) {
  if (!place) return {.problem = kSaving + to_string(place.error()), .notice = {}};
  std::error_code unknown;  // one that cannot be seen now counts as there
  std::erase_if(written_, [&](const std::filesystem::path& path) {
    return path == *place || (!std::filesystem::exists(path, unknown) && !unknown);
  });
  written_.push_back(*place);
  const std::string& run_uuid = manifest_.generation.run_uuid;
  look_for_others(directory);
  Result<void> pruned = prune_checkpoints(directory, retention, written_,
                                          others_.spared(directory, run_uuid, written_));
  std::filesystem::path absolute = std::filesystem::absolute(*place, unknown);
  return {.problem = {},
          .notice = pruned ? "" : to_string(pruned.error()),
          .of_others = std::exchange(of_others_, ""),
          .place = unknown ? *place : std::move(absolute)};
}

SnapshotTaker::Outcome SnapshotTaker::write(const std::filesystem::path& directory,
                                            const Retention& retention) {
  try {
    const std::vector<FileContent> files = taken_files();
    look_for_others(directory);  // one of the same step is about to be replaced
    Outcome outcome =
        conclude(directory, publish_checkpoint(directory, manifest_, files), retention);
    outcome.bytes = bytes_of(files);
    return outcome;
  } catch (const std::exception& error) {  // of std::filesystem, or no memory
    return {.problem = kSaving + error.what(), .notice = {}};
  }
}

SnapshotTaker::Outcome SnapshotTaker::finish(const std::filesystem::path& directory,
                                             const std::filesystem::path& hidden,
                                             const WrittenShards& written,
                                             const Retention& retention) {
  try {
    manifest_.files = written.files;
    const std::string index = to_json(written.shards);
    std::vector<FileContent> files = taken_files();
    files.push_back({kShardsName, {index}});
    look_for_others(directory);
    Outcome outcome =
        conclude(directory, finish_checkpoint(directory, hidden, manifest_, files), retention);
    outcome.bytes = bytes_of(files);
    for (const FileEntry& file : written.files) outcome.bytes += file.size_bytes;
    return outcome;
  } catch (const std::exception& error) {
    return {.problem = kSaving + error.what(), .notice = {}};
  }
}

}  // namespace ddprun::ddp
