// SPDX-License-Identifier: BSD-3-Clause
//
// The file of --event-log-handler jsonl:PATH.
#pragma once

#include <string>

#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::cli {

// Opens the file to append to it, and makes it where there is none.  It may be anything that can be
// written to; but in a folder where anybody may put files (/tmp), a regular file only: another
// user's link or FIFO there is neither followed nor waited for.  Fails with the system's code, or
// with Errc::InvalidInput and a sentence.
Result<Fd> open_event_file(const std::string& path);

}  // namespace ddprun::cli
