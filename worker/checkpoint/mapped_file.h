// SPDX-License-Identifier: BSD-3-Clause
//
// A file read in place.  What is never looked at is never read from the disk, and what has been
// read stays in the page cache for the next process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "store/base/error.h"

namespace ddprun::ddp {

// Threads: any, at once.  A file that another program cuts short meanwhile ends the process with
// SIGBUS: files of checkpoints never change, they are replaced.
class MappedFile {
 public:
  // Fails with the system's code, or with Errc::InvalidInput for what is no regular file.
  static Result<MappedFile> open(const std::filesystem::path& path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) = delete;

  std::string_view bytes() const { return {data_, size_}; }

  // Brings the whole file in at once, which is faster than page by page as it is looked at.  Fails
  // where the disk cannot read it (EIO); before Linux 5.14 the process ends later, by SIGBUS.
  Result<void> read_ahead();

  // The same bytes; writing to them changes this process's copy, never the file.
  char* data() { return data_; }

 private:
  MappedFile() = default;

  char* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ddprun::ddp
