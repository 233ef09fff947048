// SPDX-License-Identifier: BSD-3-Clause
//
// A checkpoint read back, before it is known whether it fits the program.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "worker/ddp/rank_agreement.h"
#include "worker/ddp/tensor_file.h"

namespace ddprun::ddp {

struct SavedCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::map<std::string, TensorMap> parts;  // "model", "optimizer", ...: the files of tensors
  std::string state_json;

  bool has(const std::string& name) const { return parts.count(name) > 0; }

  // The tensors of a file; none when there is no such file.
  const TensorMap& part(const std::string& name) const;
};

// The checkpoint at `path`: every file whole, of the checksum that its manifest gives, and in its
// format.  Fails with what is wrong.
Result<SavedCheckpoint> read_checkpoint(const std::filesystem::path& path);

// What becomes of a damaged checkpoint once an older one has been read.
enum class Damaged : std::uint8_t { Leave, SetAside };

// The newest good checkpoint in `directory`; tells `notify` of those it passes over.  None when
// there is none at all, and no directory either.  Fails when it cannot look, and when there are
// checkpoints and all are damaged: a program that then began anew would lose them.
Result<std::optional<SavedCheckpoint>> load_newest_checkpoint(
    const std::filesystem::path& directory, Damaged damaged,
    const std::function<void(const std::string& sentence)>& notify);

// Gives every rank what rank 0 has, but for the path.
void share(const Ranks& ranks, SavedCheckpoint& checkpoint);

}  // namespace ddprun::ddp
