// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

namespace ddprun::process {

// The whole file; nullopt where it cannot be opened or read to its end, as a file in /proc whose
// process is gone.  Blocks, throws nothing but std::bad_alloc.  (An istreambuf_iterator throws
// where a read fails, and files in /proc open well and then fail.)
std::optional<std::string> text_of_file(const std::string& path);

}  // namespace ddprun::process
