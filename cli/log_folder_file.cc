// SPDX-License-Identifier: BSD-3-Clause
#include "cli/log_folder_file.h"

#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "agent/decide/folder_name.h"
#include "store/base/folder.h"

namespace ddprun::cli {
namespace {

namespace fs = std::filesystem;

// Of all runs that have a folder there, where `run` is empty.
std::optional<fs::path> newest_below(const fs::path& folder, const std::string& file_name,
                                     const std::string& run) {
  std::optional<fs::path> newest;
  fs::file_time_type newest_time{};
  std::error_code error;
  for (const auto& entry : entries_of(folder, error)) {
    if (!fs::is_directory(entry.symlink_status(error))) continue;
    std::string name = entry.path().filename().string();
    if (!run.empty() && !agent::is_folder_of(name, run)) continue;
    fs::path file = entry.path() / file_name;
    std::error_code missing;
    fs::file_time_type time = fs::last_write_time(file, missing);
    if (missing || (newest && time <= newest_time)) continue;
    newest = file;
    newest_time = time;
  }
  return newest;
}

std::optional<fs::path> find(const fs::path& folder, const std::string& name,
                             const std::string& run) {
  fs::path path = folder / name;
  std::error_code error;
  if (run.empty() && fs::exists(path, error)) return path;
  return newest_below(folder, name, run);
}

}  // namespace

Result<LogFolderFile> file_of_run(const fs::path& folder, const std::string& name,
                                  const std::string& run, const std::string& where_else) {
  std::optional<fs::path> path = find(folder, name, run);
  if (!path) {
    std::string whose = run.empty() ? "" : " of run '" + run + "'";
    return Error{Errc::InvalidInput,
                 folder.string() + " has no " + name + whose + ": " + where_else};
  }
  std::ifstream file(*path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return system_error(errno, "read " + path->string());
  return LogFolderFile{.path = std::move(*path), .text = text.str()};
}

}  // namespace ddprun::cli
