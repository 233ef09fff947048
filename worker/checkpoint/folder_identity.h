// SPDX-License-Identifier: BSD-3-Clause
//
// Whether a name still stands for the same folder: checkpoints are replaced and removed by
// renaming.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ddprun::ddp {

struct FolderIdentity {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t changed_ns = 0;  // when a file last came or went in it; numbers of inodes return

  friend bool operator==(const FolderIdentity&, const FolderIdentity&) = default;
};

// Nullopt when there is none, or it cannot be seen.
std::optional<FolderIdentity> identity_of(const std::filesystem::path& folder);

}  // namespace ddprun::ddp
