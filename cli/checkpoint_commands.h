// SPDX-License-Identifier: BSD-3-Clause
//
// What ddpctl can do with checkpoints (worker/checkpoint/CHECKPOINTS.md).  It needs no torch.
#pragma once

#include <filesystem>
#include <optional>
#include <ostream>
#include <string>

#include "store/base/error.h"
#include "worker/checkpoint/formats/file_layout.h"

namespace ddprun::cli {

// A `path` below is a directory of checkpoints, or one checkpoint; for show and convert also a file
// of tensors.  Of a directory these two take the newest checkpoint that is whole.
//
// Each fails with Errc::InvalidInput where `path` is none of these, else with what went wrong.

// A line for each checkpoint, newest first: step, size, ranks, whether it is whole.
Result<void> list_checkpoints(const std::filesystem::path& path, std::ostream& out);

// Reads every byte and compares; a line for each checkpoint.  Returns whether all are good.
Result<bool> verify_checkpoints(const std::filesystem::path& path, std::ostream& out);

// The tensors, a line each, and the other values.
Result<void> show_checkpoint(const std::filesystem::path& path, std::ostream& out);

// Writes a file as another one, whose name's ending gives the format; or a checkpoint as one of
// the same step in the directory `to`, in `format`.
Result<void> convert_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                                std::optional<ddp::TensorFormat> format, std::ostream& out);

}  // namespace ddprun::cli
