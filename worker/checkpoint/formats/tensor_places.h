// SPDX-License-Identifier: BSD-3-Clause
//
// A file of tensors that is to be written: what is in it, and where.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/checkpoint/formats/stored_tensor.h"
#include "worker/checkpoint/formats/zip.h"

namespace ddprun::ddp {

// A file to be: where each tensor goes, and what else is in it.
struct FileLayout {
  std::uint64_t file_bytes = 0;
  std::vector<StoredTensor> tensors;  // in the file's order
  std::vector<zip::Fragment> fragments;
  zip::Layout archive;  // of a .pt; else without records
};

}  // namespace ddprun::ddp
