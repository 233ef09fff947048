// SPDX-License-Identifier: BSD-3-Clause
//
// Where workers' logs and error files lie, in torchrun's layout:
//   <base>/<run id>_<random>/attempt_<restart count>/<local
//   rank>/{stdout.log,stderr.log,error.json}
// Nothing in it is ever overwritten or deleted: each attempt has a folder of its own.
#pragma once

#include <string>

#include "store/base/error.h"

namespace ddprun::agent {

class LogDir {
 public:
  // Makes the run's folder in `base`, which is made too; an empty `base` is a fresh folder in the
  // system's place for temporary files.  Fails with the path and the system's reason.
  static Result<LogDir> create(const std::string& base, const std::string& run_id);

  // The run's folder, absolute.
  const std::string& path() const { return path_; }

  // The folder of one worker in one attempt.
  std::string worker_folder(int restart_count, int local_rank) const;

  // Makes and returns that folder.
  Result<std::string> make_worker_folder(int restart_count, int local_rank) const;

  // Removes those folders of the run that hold nothing, for a run that had nothing to say.
  void remove_if_empty() const;

 private:
  explicit LogDir(std::string base, std::string path)
      : base_(std::move(base)), path_(std::move(path)) {}

  std::string base_;  // empty unless it was made for this run
  std::string path_;
};

// Writes `text` to `path` as a whole: a reader sees the old file or the new one.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace ddprun::agent
