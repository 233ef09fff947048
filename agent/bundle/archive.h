// SPDX-License-Identifier: BSD-3-Clause
//
// A .tar.gz in which each entry is a gzip member of its own, so that it is known how much room it
// takes before it is written.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/decide/bundle_plan.h"
#include "store/base/error.h"
#include "store/base/fd.h"

namespace ddprun::agent {

// An entry; nullopt: its name is too long.
std::optional<std::string> packed_entry(std::string_view name, std::string_view text,
                                        std::int64_t mtime);

// What follows the last one.  It has at most kArchiveEndBytes.
std::string packed_end();
inline constexpr std::size_t kArchiveEndBytes = 128;

struct ReadLimits {
  std::uint64_t text = 0;                // of an entry so much is given on, its beginning
  std::uint64_t entry = UINT64_MAX / 2;  // a larger one is damage
};

// Reads all entries.  Ends with the first failure of `on_entry`, or with Errc::Protocol where the
// file is no such archive, or damaged; `name` is what it is called then.  Waits for the disk.
using OnArchiveEntry = std::function<Result<void>(const TarEntry& entry, std::string text)>;
Result<void> read_archive(Fd file, const std::string& name, const ReadLimits& limits,
                          const OnArchiveEntry& on_entry);

}  // namespace ddprun::agent
