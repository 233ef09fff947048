// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/folder.h"

namespace ddprun {

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder,
                                                         std::error_code& error) {
  std::vector<std::filesystem::directory_entry> entries;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    entries.push_back(*entry);
  return entries;
}

}  // namespace ddprun
