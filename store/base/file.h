// SPDX-License-Identifier: BSD-3-Clause
//
// Reading and writing files.  Each call may wait for the disk.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "store/base/error.h"

namespace ddprun {

// Reads `fd` from `offset` on, to its end, and at most `limit` bytes; also of a file that grows or
// shrinks meanwhile.  Fails with `what` and the system's reason.
Result<std::string> read_from(int fd, std::size_t limit, const std::string& what, off_t offset = 0);

// Writes all of `bytes` to `fd`, and waits for as long as that takes, also where `fd` is
// non-blocking.  Returns 0, or the errno of what stopped it.
int write_all(int fd, std::string_view bytes);

// The same, and how many bytes were written before that.
struct Written {
  std::size_t bytes = 0;
  int error_number = 0;  // 0: all of them
};
Written write_what_fits(int fd, std::string_view bytes);

// Writes `text` to the new file `name` in the open folder `folder`, or where AT_FDCWD leads.  Fails
// where something has that name, a link as well.  What it has made is removed where it fails then.
Result<void> write_new_file(int folder, const std::string& name, std::string_view text,
                            mode_t mode);

// Writes `text` to `name` as a whole: a reader sees what was there before, or all of it.  It is
// written to `partial` before, beside it, as write_new_file() does: a name that nobody else can
// tell where others may make files in the folder.
Result<void> replace_file(int folder, const std::string& name, const std::string& partial,
                          std::string_view text, mode_t mode);

}  // namespace ddprun
