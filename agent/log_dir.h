// SPDX-License-Identifier: BSD-3-Clause
//
// Where workers' logs and error files lie, in torchrun's layout:
//   <base>/<run id>_<random>/attempt_<restart count>/<local
//   rank>/{stdout.log,stderr.log,error.json}
// What workers have left there is never overwritten or deleted: each attempt has a folder of its
// own.  In a base that the user named, the link `latest` leads to the run that began last.  Without
// one the run's folder is <temporary>/ddprun_<run id>_<random>.
#pragma once

#include <sys/types.h>

#include <string>

#include "store/base/error.h"

namespace ddprun::agent {

class LogDir {
 public:
  // Makes the run's folder in `base`, which is made too; an empty `base` is the system's place for
  // temporary files.  With `has_logs` it sees to it that files can be written there.  Fails with
  // the path, the system's reason and what can be done.
  static Result<LogDir> create(const std::string& base, const std::string& run_id,
                               bool has_logs = true);

  // The run's folder, absolute.
  const std::string& path() const { return path_; }

  // The device of the file system that it was made on.
  dev_t device() const { return device_; }

  // A sentence where another user than root can exchange what is in the folder around it; else
  // empty.
  std::string exposure() const;

  // Makes the run's folder anew if somebody has removed it, a cleaner of /tmp for instance.
  // Returns whether it has.
  bool restore() const;

  // Makes the folder of an attempt, and returns its path: attempt_<restart count>, and for a
  // further round under the same count attempt_<restart count>.1 and so on.  Restores the run's
  // folder where that is gone.
  Result<std::string> make_attempt(int restart_count) const;

  // Where a worker writes its error file while it has no folder.  `start` tells attempts apart,
  // also those under the same restart count.
  std::string loose_error_file(int start, int local_rank) const;

  // Makes the folder of one worker in an attempt's, and returns its path.
  static Result<std::string> make_worker_folder(const std::string& attempt, int local_rank);

  // It is nobody's but this run's, and goes when it stays empty.
  bool is_temporary() const { return is_temporary_; }

  // Removes the run's folder when it is a temporary one that holds no file, for a run that had
  // nothing to say.  Returns whether it has.
  bool remove_if_empty() const;

 private:
  LogDir(bool is_temporary, std::string path, dev_t device)
      : is_temporary_(is_temporary), path_(std::move(path)), device_(device) {}

  bool is_temporary_;
  std::string path_;
  dev_t device_;
};

// $TMPDIR, as an absolute path; /tmp where there is no such folder.
std::string temporary_folder();

// Whether the disk that `path` is on takes no more from this user.  False where it cannot be seen,
// and under a quota.  May wait for the disk.
bool is_disk_full(const std::string& path);

// Writes `text` to `path` as a whole: a reader, who must be of this user, sees the old file or the
// new one.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace ddprun::agent
