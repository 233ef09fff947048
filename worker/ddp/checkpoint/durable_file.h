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
#include "worker/ddp/checkpoint/manifest.h"

namespace ddprun::ddp {

// Writes a new file from its pieces and syncs it.  Fails with the system's code (no space left on
// device) and the file; what was written is left for the caller to remove.
Result<FileEntry> write_durably(const std::filesystem::path& path,
                                const std::vector<std::string_view>& pieces);

// Syncs the names in a folder: a file's own sync does not make its name durable.
Result<void> sync_folder(const std::filesystem::path& path);

// The whole of a file.  Fails with Errc::LimitExceeded, before reading, when it is longer than
// `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// The CRC-32C of a file, read in blocks.
Result<std::uint32_t> checksum_of(const std::filesystem::path& path);

}  // namespace ddprun::ddp
