// SPDX-License-Identifier: BSD-3-Clause
//
// A file that a run has left in its log folder.
#pragma once

#include <filesystem>
#include <string>

#include "store/base/error.h"

namespace ddprun::cli {

struct LogFolderFile {
  std::filesystem::path path;
  std::string text;
};

// The file of this name in `folder`, or, where `folder` is a --log-dir or `run` is not empty, in
// the folder below it of the run that is called so, or of any, whose file was written last.
// Fails where there is none, with Errc::InvalidInput and `where_else`, what may help then; and
// where it cannot be read.
Result<LogFolderFile> file_of_run(const std::filesystem::path& folder, const std::string& name,
                                  const std::string& run, const std::string& where_else);

}  // namespace ddprun::cli
