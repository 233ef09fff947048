// SPDX-License-Identifier: BSD-3-Clause
//
// The log folder of a run, read without following a link in it: workers write there, and another
// node may, too.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "agent/decide/bundle_plan.h"
#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::agent {

class LogFolder {
 public:
  // Of a --log-dir with several runs, the one that `latest` names.
  static Result<LogFolder> open(const std::string& path);

  // What was opened.
  const std::string& path() const { return path_; }

  // Its regular files, at most kMostFiles of them and kMostDepth folders down.  What was not read
  // is added to `notes`.
  std::vector<LogFile> files(std::vector<std::string>& notes) const;
  static constexpr std::size_t kMostFiles = 20'000;
  static constexpr int kMostDepth = 8;

  // The end of a file of it, at most `limit` bytes.  Fails with the system's reason; a file that is
  // no regular one any more is no such file.
  Result<std::string> end_of(const std::string& file, std::size_t limit) const;

 private:
  LogFolder(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Fd fd_;
  std::string path_;
};

}  // namespace ddprun::agent
