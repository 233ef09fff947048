// SPDX-License-Identifier: BSD-3-Clause
//
// What is in a folder.  std::filesystem's iterators throw where a range-for goes on with them, as
// in a folder that goes meanwhile, or on a network file system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace ddprun {

// As far as it could be read; `error` says why not all of it, or none.
std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& folder,
                                                         std::error_code& error);

// The names in an open folder that `is_wanted` wants, at most `most`; "." and ".." are none.  As
// far as it could be read; `error` says why not all of it, or none.
std::vector<std::string> names_in(int folder, std::size_t most, std::error_code& error,
                                  const std::function<bool(std::string_view)>& is_wanted);

}  // namespace ddprun
