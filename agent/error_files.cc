// SPDX-License-Identifier: BSD-3-Clause
#include "agent/error_files.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace ddprun::agent {

void ErrorFiles::begin_attempt(int start, int restart_count) {
  start_ = start;
  restart_count_ = restart_count;
  attempt_.clear();
}

std::string ErrorFiles::path_for(const std::string& folder, int local_rank) const {
  if (!folder.empty()) return folder + "/error.json";
  return log_dir_ ? log_dir_->loose_error_file(start_, local_rank) : "";
}

std::optional<ErrorFiles::Kept> ErrorFiles::keep(const std::string& file, int local_rank) {
  if (file.empty() || ::access(file.c_str(), F_OK) != 0) return std::nullopt;
  if (attempt_.empty()) {
    auto attempt = log_dir_->make_attempt(restart_count_);
    if (!attempt) return std::nullopt;
    attempt_ = *attempt;
  }
  auto folder = LogDir::make_worker_folder(attempt_, local_rank);
  if (!folder) return std::nullopt;
  std::string kept = *folder + "/error.json";
  if (::rename(file.c_str(), kept.c_str()) != 0) return std::nullopt;
  return Kept{.folder = *folder, .file = std::move(kept)};
}

}  // namespace ddprun::agent
