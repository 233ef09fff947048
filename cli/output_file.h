// SPDX-License-Identifier: BSD-3-Clause
//
// A file that a user has named for us to write into.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::cli {

enum class OutputMode : std::uint8_t {
  Append,   // behind what the file has
  Replace,  // instead of it
};

// Opens the file to write to it, and makes it with `mode` where there is none.  It may be anything
// that can be written to; but in a folder where anybody may put files (/tmp), a regular file only:
// another user's link or FIFO there is neither followed nor waited for, and its file is left as it
// is.  Fails with the system's code, or with Errc::InvalidInput and a sentence; `what` begins it.
Result<Fd> open_output(const std::string& path, OutputMode output_mode, mode_t mode,
                       const std::string& what);

}  // namespace ddprun::cli
