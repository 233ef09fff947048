// SPDX-License-Identifier: BSD-3-Clause
//
// What an attempt needs on the disk before its workers start: its folder in the log folder, a
// folder for each worker, and their log files.  Making them waits for the disk, which may stand
// still, so this is done on a thread, by itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/decide/config.h"
#include "agent/log_dir.h"
#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::agent {

// Whether the stream has a log file where there is a log folder.
bool goes_to_file(StreamRoute route);

// A copy of what the configuration says.
struct AttemptFilesSpec {
  std::shared_ptr<const LogDir> log_dir;  // nullptr: there is nothing to make
  bool is_first = true;                   // no attempt before has had files there
  bool has_late_folders = false;          // it need only be there, for error files
  int restart_count = 0;
  std::vector<WorkerRoutes> routes;  // by local rank
  bool has_stdout_filters = false;
  bool has_stderr_filters = false;
};
AttemptFilesSpec attempt_files_spec(const WorkerGroupConfig& config, int restart_count,
                                    bool is_first);

struct AttemptFiles {
  struct OfWorker {
    std::string folder;
    Fd out;  // closed for a stream that goes to no file
    Fd err;
  };
  std::string folder;  // empty without a log folder
  Fd filtered_out;
  Fd filtered_err;
  std::vector<OfWorker> workers;  // by local rank; empty folders without a log folder
  std::string lost;  // why the log folder takes nothing more; the attempt has no files then
};

// Threads: any.  A full disk ends no run, nor does a log folder that earlier attempts have used and
// that takes nothing more, as one on a file system that was mounted anew: see `lost`.  Fails with
// the path and the system's reason for another folder, and where there are no descriptors left,
// which the workers would lack, too.
Result<AttemptFiles> make_attempt_files(const AttemptFilesSpec& spec);

}  // namespace ddprun::agent
