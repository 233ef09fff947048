// SPDX-License-Identifier: BSD-3-Clause
//
// A file that a run has left in its log folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ddprun::cli {

// The file of this name in `folder`, or, where `folder` is a --log-dir or `run` is not empty, in
// the folder below it of the run that is called so, or of any, whose file was written last.
// nullopt: there is none.
std::optional<std::filesystem::path> file_of_run(const std::filesystem::path& folder,
                                                 const std::string& name, const std::string& run);

}  // namespace ddprun::cli
