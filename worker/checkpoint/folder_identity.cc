// SPDX-License-Identifier: BSD-3-Clause
#include "worker/checkpoint/folder_identity.h"

#include <sys/stat.h>

namespace ddprun::ddp {

std::optional<FolderIdentity> identity_of(const std::filesystem::path& folder) {
  struct stat seen {};
  if (::stat(folder.c_str(), &seen) != 0) return std::nullopt;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  return FolderIdentity{.device = seen.st_dev,
                        .inode = seen.st_ino,
                        .changed_ns = seen.st_mtim.tv_sec * kNanoseconds + seen.st_mtim.tv_nsec};
}

}  // namespace ddprun::ddp
