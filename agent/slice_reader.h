// SPDX-License-Identifier: BSD-3-Clause
//
// Reads what workers append to the files that DDPRUN_TIMELINE_FILE names (worker/timeline_slice.h),
// each line once.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "worker/timeline_slice.h"

namespace ddprun::agent {

// That of the worker whose folder in the log folder this is; empty without one.
std::string slices_path(const std::string& folder);

// Blocks on the disk.
// Threads: any one at a time.
class SliceReader {
 public:
  // Of one call, and of all that one worker writes: what floods the file is left out.
  static constexpr std::size_t kMostBytes = 64 * 1024;
  static constexpr std::size_t kMostSlices = 4096;

  // The lines that have become whole since the call before.  Of more than kMostBytes the rest comes
  // with the next call.  None where the file is not there or no regular one.
  std::vector<worker::TimelineSlice> read(const std::string& folder);

 private:
  struct File {
    std::size_t offset = 0;
    std::size_t slices = 0;
  };
  std::map<std::string, File> files_;  // by folder
};

}  // namespace ddprun::agent
