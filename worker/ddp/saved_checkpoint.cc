// SPDX-License-Identifier: BSD-3-Clause
#include "worker/ddp/saved_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "worker/checkpoint/directory.h"
#include "worker/checkpoint/folder_identity.h"
#include "worker/checkpoint/mapped_file.h"
#include "worker/ddp/sharded_save.h"
#include "worker/ddp/snapshot.h"

namespace ddprun::ddp {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

bool is_tensor_file(const fs::path& name) {
  return name.extension() == ".safetensors" || name.extension() == ".pt";
}

// What becomes of damaged checkpoints once another one has been read.
enum class Damaged : std::uint8_t { Leave, SetAside };

// Gives the checkpoints of a directory, in the order in which they are to be tried.
using List = std::function<std::vector<FoundCheckpoint>()>;

// A listing may miss all of few checkpoints while one comes and another goes.
std::vector<FoundCheckpoint> list_twice_if_none(const List& list) {
  std::vector<FoundCheckpoint> found = list();
  return found.empty() ? list() : found;
}

// The first good one that `list` gives of `directory`.  Lists again when one has been removed or
// replaced while it was read, as a training does beside a load.
Result<std::optional<SavedCheckpoint>> load_first_good(const fs::path& directory, const List& list,
                                                       Damaged damaged, const Notify& notify) {
  std::error_code error;
  [[maybe_unused]] const fs::directory_iterator opened(directory, error);
  if (error == std::errc::no_such_file_or_directory) return std::nullopt;
  if (error) return system_error(error.value(), "read " + directory.string());

  constexpr int kListings = 100;  // each means that a training has saved meanwhile
  std::set<fs::path> told;
  std::vector<fs::path> passed_over;
  std::vector<FoundCheckpoint> candidates;
  bool has_changed = false;
  for (int listing = 1; listing == 1 || has_changed; ++listing) {
    candidates = list_twice_if_none(list);
    passed_over.clear();
    has_changed = false;
    for (const FoundCheckpoint& checkpoint : candidates) {
      const auto before = identity_of(checkpoint.path);
      Result<SavedCheckpoint> saved = read_checkpoint(checkpoint.path);
      if (saved && damaged == Damaged::SetAside) {
        for (const fs::path& path : passed_over) {
          Result<fs::path> place = set_aside(path);
          notify(place ? "moved " + path.string() + " to " + place->filename().string()
                       : to_string(place.error()));
        }
      }
      if (saved) return std::optional(std::move(*saved));
      has_changed = !before || identity_of(checkpoint.path) != before;
      if (has_changed && listing < kListings) break;
      has_changed = false;
      // An older one must not be taken up beside it.
      if (saved.error().code == make_error_code(Errc::NotSupported)) return saved.error();
      if (told.insert(checkpoint.path).second) {
        notify("passing over a damaged checkpoint: " + to_string(saved.error()));
      }
      // What could not be read may be read another time.
      if (saved.error().code == make_error_code(Errc::Protocol))
        passed_over.push_back(checkpoint.path);
    }
  }
  if (candidates.empty()) return std::nullopt;
  return Error{Errc::Protocol, directory.string() + ": none of its " +
                                   std::to_string(candidates.size()) +
                                   " checkpoints is good; move them away to begin anew"};
}

std::vector<FoundCheckpoint> written_by(const std::string& run_uuid,
                                        const std::vector<FoundCheckpoint>& found) {
  std::vector<FoundCheckpoint> own;
  if (run_uuid.empty()) return own;
  for (const FoundCheckpoint& checkpoint : found) {
    Result<Manifest> manifest = inspect_checkpoint(checkpoint.path);
    if (manifest && manifest->generation.run_uuid == run_uuid) own.push_back(checkpoint);
  }
  return own;
}

// "it has those of 40, 20 and 10", of the newest few.
std::string steps_text(const std::vector<FoundCheckpoint>& found) {
  if (found.empty()) return "it has none";
  constexpr std::size_t kMost = 10;
  std::string text = "it has those of";
  for (std::size_t i = 0; i < std::min(kMost, found.size()); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(found[i].step);
  }
  if (found.size() > kMost) text += " and " + std::to_string(found.size() - kMost) + " older ones";
  return text;
}

// Whether all parts are as they should be; puts those together that all ranks have written.
Result<void> complete(SavedCheckpoint& saved, std::map<std::string, TensorMap> files,
                      const std::string& shards_json) {
  if (saved.is_sharded) {
    Result<Shards> shards = parse_shards(shards_json);
    if (!shards) return shards.error();
    Result<std::map<std::string, TensorMap>> parts = assemble(*shards, files);
    if (!parts) return parts.error();
    saved.parts = std::move(*parts);
    std::erase_if(files,
                  [&](const auto& file) { return file.first.find("-of-") != std::string::npos; });
  }
  for (auto& [name, tensors] : files) saved.parts[fs::path(name).stem()] = std::move(tensors);
  if (!saved.has(kModelPart)) return Error{Errc::Protocol, "it has no model"};
  if (!Json::accept(saved.state_json)) {
    return Error{Errc::Protocol, std::string("it has no readable ") + kStateFile};
  }
  return {};
}

template <class Map>
Result<SavedCheckpoint> read_files(const fs::path& path, Map map) {
  Result<Manifest> manifest = inspect_checkpoint(path);
  if (!manifest) return manifest.error();
  SavedCheckpoint saved{.path = path, .step = manifest->step, .parts = {}, .state_json = {}};
  std::map<std::string, TensorMap> files;
  std::string shards_json;
  for (const FileEntry& entry : manifest->files) {
    Result<MappedFile> file = map(path, entry);
    if (!file) return file.error();
    if (entry.name == kStateFile) saved.state_json = file->bytes();
    if (entry.name == kShardsName) {
      shards_json = file->bytes();
      saved.is_sharded = true;
    }
    if (!is_tensor_file(entry.name)) continue;
    auto owner = std::make_shared<MappedFile>(std::move(*file));
    Result<TensorMap> tensors = tensors_in(owner, owner->data(), owner->bytes().size());
    if (!tensors) {
      return Error{tensors.error().code,
                   path.string() + ": " + entry.name + ": " + tensors.error().context};
    }
    files[entry.name] = std::move(*tensors);
  }
  Result<void> done = complete(saved, std::move(files), shards_json);
  if (!done) return Error{done.error().code, path.string() + ": " + done.error().context};
  return saved;
}

}  // namespace

const TensorMap& SavedCheckpoint::part(const std::string& name) const {
  static const TensorMap kNone;
  auto found = parts.find(name);
  return found == parts.end() ? kNone : found->second;
}

Result<SavedCheckpoint> read_checkpoint(const fs::path& path) {
  return read_files(path, map_checkpoint_file);
}

Result<SavedCheckpoint> read_verified_checkpoint(const fs::path& path) {
  return read_files(path, [](const fs::path& folder, const FileEntry& entry) {
    return MappedFile::open(folder / entry.name);
  });
}

Result<std::optional<SavedCheckpoint>> load_newest_checkpoint(const fs::path& directory,
                                                              const Notify& notify) {
  return load_first_good(
      directory, [&] { return list_checkpoints(directory); }, Damaged::Leave, notify);
}

Result<std::optional<SavedCheckpoint>> load_one_checkpoint(const fs::path& path) {
  Result<SavedCheckpoint> one = read_checkpoint(path);
  if (!one) return one.error();
  return std::optional(std::move(*one));
}

Result<std::optional<SavedCheckpoint>> load_best_checkpoint(const fs::path& directory, Best best,
                                                            const Notify& notify) {
  return load_first_good(
      directory, [&] { return list_by_metric(directory, best); }, Damaged::Leave, notify);
}

Result<std::optional<SavedCheckpoint>> load_to_resume(const fs::path& directory,
                                                      const ResumePoint& point,
                                                      const Notify& notify) {
  auto list = [&] { return list_checkpoints(directory); };
  if (!point.step) return load_first_good(directory, list, Damaged::SetAside, notify);

  const std::vector<FoundCheckpoint> found = list();
  const auto asked_for = std::find_if(
      found.begin(), found.end(),
      [&](const FoundCheckpoint& checkpoint) { return checkpoint.step == *point.step; });
  if (point.is_restart && !written_by(point.run_uuid, found).empty()) {
    auto saved = load_first_good(
        directory, [&] { return written_by(point.run_uuid, list()); }, Damaged::SetAside, notify);
    if (saved && *saved && (*saved)->step != *point.step) {
      notify("resume: goes on from step " + std::to_string((*saved)->step) + " and not from step " +
             std::to_string(*point.step) + ", which was asked for" +
             (asked_for == found.end() ? " and is not there" : "") +
             ": this run has saved since, and a restart goes on from its own newest checkpoint");
    }
    return saved;
  }
  if (asked_for != found.end()) return load_one_checkpoint(asked_for->path);
  return Error{Errc::InvalidInput, directory.string() + " has no checkpoint of step " +
                                       std::to_string(*point.step) + "; " + steps_text(found)};
}

void share(const Ranks& ranks, SavedCheckpoint& checkpoint) {
  Json head = {
      {"step", checkpoint.step}, {"state", checkpoint.state_json}, {"parts", Json::array()}};
  for (const auto& [name, tensors] : checkpoint.parts) head["parts"].push_back(name);
  head = Json::parse(ranks.broadcast_text(head.dump()));
  checkpoint.step = head["step"].get<std::int64_t>();
  checkpoint.state_json = head["state"].get<std::string>();
  for (const Json& name : head["parts"]) ranks.broadcast(checkpoint.parts[name.get<std::string>()]);
}

}  // namespace ddprun::ddp
