// SPDX-License-Identifier: BSD-3-Clause
#include "agent/log_dir.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace ddprun::agent {
namespace {

namespace fs = std::filesystem;

Error failure(const std::error_code& code, const std::string& path) {
  return {{code.value(), boost::system::system_category()}, "make log folder " + path};
}

// A run id is the user's text: what would leave the folder, or hide it, becomes '_'.
std::string as_file_name(std::string run_id) {
  std::replace(run_id.begin(), run_id.end(), '/', '_');
  if (run_id.starts_with('.')) run_id[0] = '_';
  return run_id.substr(0, 128);
}

Result<std::string> make_unique_folder(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return system_error(errno, "make log folder " + path);
  return path;
}

}  // namespace

Result<LogDir> LogDir::create(const std::string& base, const std::string& run_id) {
  std::error_code error;
  std::string parent;
  std::string made_for_run;
  if (base.empty()) {
    fs::path temporary = fs::temp_directory_path(error);
    if (error) temporary = "/tmp";
    Result<std::string> made = make_unique_folder((temporary / "ddprun_").string());
    if (!made) return made.error();
    parent = made_for_run = *made;
  } else {
    parent = fs::absolute(base, error).string();
    if (!error) fs::create_directories(parent, error);
    if (error) return failure(error, parent);
  }
  Result<std::string> path = make_unique_folder(parent + "/" + as_file_name(run_id) + "_");
  if (!path) return path.error();
  return LogDir(std::move(made_for_run), std::move(*path));
}

std::string LogDir::worker_folder(int restart_count, int local_rank) const {
  return path_ + "/attempt_" + std::to_string(restart_count) + "/" + std::to_string(local_rank);
}

Result<std::string> LogDir::make_worker_folder(int restart_count, int local_rank) const {
  std::string folder = worker_folder(restart_count, local_rank);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failure(error, folder);
  return folder;
}

void LogDir::remove_if_empty() const {
  std::error_code error;
  std::vector<fs::path> folders = {path_};
  for (const auto& entry : fs::recursive_directory_iterator(path_, error)) {
    if (!entry.is_directory()) return;
    folders.push_back(entry.path());
  }
  // Deepest first; each removal fails harmlessly should something have appeared meanwhile.
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) ::rmdir(folder->c_str());
  if (!base_.empty()) ::rmdir(base_.c_str());
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::string temporary = path + ".ddprun-" + std::to_string(::getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << text << std::flush;
  if (!file) return system_error(errno, "write " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error(errno, "write " + path);
  return {};
}

}  // namespace ddprun::agent
