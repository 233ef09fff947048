// SPDX-License-Identifier: BSD-3-Clause
//
// Files that are on the disk when a call returns, with the checksum computed on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/manifest.h"

namespace ddprun::ddp {

// Writes a new file from its pieces and syncs it.  Fails with the system's code (no space left on
// device) and the file; what was written is left for the caller to remove.
Result<FileEntry> write_durably(const std::filesystem::path& path,
                                const std::vector<std::string_view>& pieces);

// The same for a file that is whole in `file`, memory that begins at a page and goes on to the end
// of one (Staging): where the file system allows it, the bytes go to the disk past the page cache,
// which takes no copy and does not push out what other programs keep there.
Result<FileEntry> write_past_cache(const std::filesystem::path& path, std::string_view file);

// Puts `file`, as above, in the place of `path`, which may exist: a crash leaves the old one or the
// new one.  Fails with the system's code; the old one stays.
Result<void> replace_durably(const std::filesystem::path& path, std::string_view file);

// Syncs the names in a folder: a file's own sync does not make its name durable.
Result<void> sync_folder(const std::filesystem::path& path);

// The whole of a file.  Fails with Errc::LimitExceeded, before reading, when it is longer than
// `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// The CRC-32C of a file, read in blocks.
Result<std::uint32_t> checksum_of(const std::filesystem::path& path);

}  // namespace ddprun::ddp
