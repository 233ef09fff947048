// SPDX-License-Identifier: BSD-3-Clause
#include "agent/error_files.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace ddprun::agent {
namespace {

std::optional<ErrorFiles::Kept> keep(const LogDir* log_dir, std::string& attempt, int restart_count,
                                     const std::string& file, int local_rank) {
  if (log_dir == nullptr || file.empty() || ::access(file.c_str(), F_OK) != 0) return std::nullopt;
  if (attempt.empty()) {
    auto made = log_dir->make_attempt(restart_count);
    if (!made) return std::nullopt;
    attempt = *made;
  }
  auto folder = LogDir::make_worker_folder(attempt, local_rank);
  if (!folder) return std::nullopt;
  std::string kept = *folder + "/error.json";
  if (::rename(file.c_str(), kept.c_str()) != 0) return std::nullopt;
  return ErrorFiles::Kept{.folder = *folder, .file = std::move(kept)};
}

}  // namespace

void ErrorFiles::begin_attempt(int start, int restart_count) {
  start_ = start;
  restart_count_ = restart_count;
  attempt_ = std::make_shared<std::string>();
}

std::string ErrorFiles::path_for(const std::string& folder, int local_rank) const {
  if (!folder.empty()) return folder + "/error.json";
  return log_dir_ ? log_dir_->loose_error_file(start_, local_rank) : "";
}

ErrorFiles::Keep ErrorFiles::keeper() const {
  return [log_dir = log_dir_, attempt = attempt_, restart_count = restart_count_](
             const std::string& file, int local_rank) {
    return keep(log_dir.get(), *attempt, restart_count, file, local_rank);
  };
}

}  // namespace ddprun::agent
