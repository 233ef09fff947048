// SPDX-License-Identifier: BSD-3-Clause
//
// A checkpoint read back, before it is known whether it fits the program.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "worker/checkpoint/directory.h"
#include "worker/ddp/rank_agreement.h"
#include "worker/ddp/tensor_file.h"

namespace ddprun::ddp {

struct SavedCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::map<std::string, TensorMap> parts;  // "model", "optimizer", ...: the files of tensors
  std::string state_json;
  bool is_sharded = false;  // all ranks have written it, and read it

  bool has(const std::string& name) const { return parts.count(name) > 0; }

  // The tensors of a file; none when there is no such file.
  const TensorMap& part(const std::string& name) const;
};

// The checkpoint at `path`: every file whole, of the checksum that its manifest gives, and in its
// format.  Fails with what is wrong.
Result<SavedCheckpoint> read_checkpoint(const std::filesystem::path& path);

// The same on another rank than the one that has compared the checksums, which this does not.
Result<SavedCheckpoint> read_verified_checkpoint(const std::filesystem::path& path);

using Notify = std::function<void(const std::string& sentence)>;

// The newest good checkpoint in `directory`, also while a training writes to it and removes old
// ones; tells `notify` of those it passes over.  None when there is none at all, and no directory
// either.  Fails when it cannot look, and when there are
// checkpoints and all are damaged: a program that then began anew would lose them.
Result<std::optional<SavedCheckpoint>> load_newest_checkpoint(
    const std::filesystem::path& directory, const Notify& notify);

// The checkpoint at `path`, or why it cannot be read.
Result<std::optional<SavedCheckpoint>> load_one_checkpoint(const std::filesystem::path& path);

// The good checkpoint in `directory` with the best metric; none when none was saved with one.
// Otherwise as load_newest_checkpoint().
Result<std::optional<SavedCheckpoint>> load_best_checkpoint(const std::filesystem::path& directory,
                                                            Best best, const Notify& notify);

// Which checkpoint a run goes on from.
struct ResumePoint {
  std::optional<std::int64_t> step;  // nullopt: the newest
  std::string run_uuid;              // of the run; empty where it has none
  bool is_restart = false;           // what the run has written itself then comes before `step`
};

// Loads it as load_newest_checkpoint() does, and moves the damaged ones aside that it has passed
// over once it has read one.  Fails when the step that is asked for is not there or damaged; says
// so when a restart takes another one.
Result<std::optional<SavedCheckpoint>> load_to_resume(const std::filesystem::path& directory,
                                                      const ResumePoint& point,
                                                      const Notify& notify);

// Gives every rank what rank 0 has, but for the path.
void share(const Ranks& ranks, SavedCheckpoint& checkpoint);

}  // namespace ddprun::ddp
