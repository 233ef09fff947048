// SPDX-License-Identifier: BSD-3-Clause
//
// The manifest of a checkpoint: which files it has, how long they are and what they sum up to, so
// that a damaged one is known before it is used.  It is written last: a folder without one is no
// checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"

namespace ddprun::ddp {

struct FileEntry {
  std::string name;  // within the checkpoint's folder
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

// Which workers of a run wrote it: those of a later round have taken the place of an earlier one's.
struct Generation {
  std::string run_uuid;  // DDPRUN_RUN_UUID; empty where no ddprun has started them
  int round = 0;         // DDPRUN_ROUND, which only grows as long as the run lasts

  friend bool operator==(const Generation&, const Generation&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  int world_size = 0;         // of the run that saved it
  std::string torch_version;  // of the program that saved it
  Generation generation{};
  std::optional<double> metric{};  // how good the model is, as the program says; finite
  std::vector<FileEntry> files;

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// As JSON, one file a line, for people to read too.
std::string to_json(const Manifest& manifest);

// Fails with Errc::Protocol for what to_json() does not write: a field missing or of another kind,
// a file name with a slash in it; and with Errc::NotSupported for the format of a newer version.
Result<Manifest> parse_manifest(std::string_view text);

}  // namespace ddprun::ddp
