// SPDX-License-Identifier: BSD-3-Clause
//
// What is in a folder.  std::filesystem's iterators throw where a range-for goes on with them, as
// in a folder that goes meanwhile, or on a network file system.
#pragma once

#include <filesystem>
#include <system_error>
#include <vector>

namespace ddprun {

// As far as it could be read; `error` says why not all of it, or none.
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder,
                                                         std::error_code& error);

}  // namespace ddprun
