// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace ddprun::process {

// The whole file; nullopt where it cannot be opened or read to its end, as a file in /proc whose
// process is gone.  Blocks, throws nothing but std::bad_alloc.  (An istreambuf_iterator throws
// where a read fails, and files in /proc open well and then fail.)
std::optional<std::string> text_of_file(const std::string& path);

// The same of a file that a worker may have written, and which may be anything: nullopt for what is
// no regular file (a FIFO, a device, a link) or has more than `limit` bytes.  Never blocks but on a
// disk.
std::optional<std::string> text_of_regular_file(const std::string& path, std::size_t limit);

// The last bytes of such a file, at most `limit`.
std::optional<std::string> end_of_regular_file(const std::string& path, std::size_t limit);

// What stands from `offset` on, at most `limit` bytes; empty where the file is not so long.
std::optional<std::string> part_of_regular_file(const std::string& path, std::size_t offset,
                                                std::size_t limit);

}  // namespace ddprun::process
