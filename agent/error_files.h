// SPDX-License-Identifier: BSD-3-Clause
//
// Where the workers of an attempt write their error files, also those without a folder of their
// own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/log_dir.h"

namespace ddprun::agent {

class ErrorFiles {
 public:
  // Without a log folder (nullptr) no worker has an error file.
  explicit ErrorFiles(std::shared_ptr<const LogDir> log_dir) : log_dir_(std::move(log_dir)) {}

  // `start` counts the attempts, also those under the same restart count.
  void begin_attempt(int start, int restart_count);

  // A worker's file; `folder` is the worker's, empty where it has none.
  std::string path_for(const std::string& folder, int local_rank) const;

  struct Kept {
    std::string folder;
    std::string file;
  };
  // Makes a folder for a worker that has none and has written an error file, and moves the file
  // into it.  nullopt: there is no such file, or it stays where it is, since that failed.
  using Keep = std::function<std::optional<Kept>(const std::string& file, int local_rank)>;

  // That, for the workers of this attempt.  It waits for the disk: to be called on the disk's
  // thread, always the same, also when this object is gone.
  Keep keeper() const;

 private:
  std::shared_ptr<const LogDir> log_dir_;
  int start_ = 0;
  int restart_count_ = 0;
  // The folder of the attempt, made with the first file that is kept.  Of the disk's thread.
  std::shared_ptr<std::string> attempt_ = std::make_shared<std::string>();
};

}  // namespace ddprun::agent
