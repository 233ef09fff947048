// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/other_runs.h"

#include <algorithm>

namespace ddprun::ddp {

namespace fs = std::filesystem;

void OtherRuns::begin(const fs::path& directory) {
  if (has_begun_) return;
  has_begun_ = true;
  for (const FoundCheckpoint& found : list_checkpoints(directory)) {
    if (auto identity = identity_of(found.path)) seen_[found.path] = *identity;
  }
}

std::vector<OtherRuns::Foreign> OtherRuns::foreign_in(const fs::path& directory,
                                                      const std::string& run_uuid,
                                                      const std::vector<fs::path>& written) const {
  std::vector<Foreign> foreign;
  for (const FoundCheckpoint& found : list_checkpoints(directory)) {
    const auto identity = identity_of(found.path);
    Result<Manifest> manifest = inspect_checkpoint(found.path);
    if (!manifest || !identity) continue;  // damaged, or gone meanwhile
    const std::string& writer = manifest->generation.run_uuid;
    const bool is_own = run_uuid.empty() && writer.empty()
                            ? std::find(written.begin(), written.end(), found.path) != written.end()
                            : writer == run_uuid;
    if (is_own) continue;
    const auto before = seen_.find(found.path);
    foreign.push_back({.path = found.path,
                       .run_uuid = writer,
                       .is_new = before == seen_.end() || before->second != *identity});
  }
  return foreign;
}

std::string OtherRuns::look(const fs::path& directory, const std::string& run_uuid,
                            const std::vector<fs::path>& written) {
  std::string sentence;
  for (const Foreign& other : foreign_in(directory, run_uuid, written)) {
    if (!other.is_new || !alive_.insert(other.run_uuid).second) continue;
    sentence = other.path.string() + " was written by another run" +
               (other.run_uuid.empty() ? "" : " (" + other.run_uuid + ")") +
               " since this one began: give each run a directory of its own; this run removes none "
               "of the other's checkpoints";
  }
  return sentence;
}

std::vector<fs::path> OtherRuns::spared(const fs::path& directory, const std::string& run_uuid,
                                        const std::vector<fs::path>& written) {
  const bool is_first = !has_saved_;
  has_saved_ = true;
  std::vector<fs::path> paths;
  for (const Foreign& other : foreign_in(directory, run_uuid, written)) {
    if (is_first || other.is_new || alive_.contains(other.run_uuid)) paths.push_back(other.path);
  }
  return paths;
}

}  // namespace ddprun::ddp
