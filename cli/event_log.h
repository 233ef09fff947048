// SPDX-License-Identifier: BSD-3-Clause
//
// The file of --event-log-handler jsonl:PATH.
#pragma once

#include <string>
#include <utility>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::cli {

// Opens the file to append to it, and makes it where there is none.  It may be anything that can be
// written to; but in a folder where anybody may put files (/tmp), a regular file only: another
// user's link or FIFO there is neither followed nor waited for.  Fails with the system's code, or
// with Errc::InvalidInput and a sentence.
Result<Fd> open_event_file(const std::string& path);

// Writes records to such a file.  Threads: any, one at a time.
class EventFile {
 public:
  EventFile(Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  // A record with its line end.  Fails with the path and the system's reason, as on a full disk;
  // what was written of it then stands on a line of its own.
  Result<void> write(std::string record);

 private:
  Fd file_;
  std::string path_;
  bool is_cut_ = false;
};

}  // namespace ddprun::cli
