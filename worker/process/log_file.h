// SPDX-License-Identifier: BSD-3-Clause
//
// A file that the agent itself writes workers' output to.  A disk that is full must not stop the
// run: what the file refuses is lost, and its owner is told once.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::process {

// Lifetime: `on_failure` is called from write(), at most once.
class LogFile {
 public:
  // Opens `path` for appending, and makes it.  Fails with the path and the system's reason.
  static Result<LogFile> open(const std::string& path,
                              std::function<void(const Error&)> on_failure);

  // Writes all of `bytes`, or as much as the file takes.  Each call tries anew.
  void write(std::string_view bytes);

 private:
  LogFile(std::string path, Fd fd, std::function<void(const Error&)> on_failure)
      : path_(std::move(path)), fd_(std::move(fd)), on_failure_(std::move(on_failure)) {}

  std::string path_;
  Fd fd_;
  std::function<void(const Error&)> on_failure_;  // empty once it has been called
};

}  // namespace ddprun::process
