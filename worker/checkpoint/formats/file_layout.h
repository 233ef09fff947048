// SPDX-License-Identifier: BSD-3-Clause
//
// Files of named tensors in the two formats that Python reads, as places of bytes: what is to be
// written is laid out first, so that the tensors can be copied to their places in one memory that
// then goes to the disk as it is; what is there is read in place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/stored_tensor.h"
#include "worker/checkpoint/formats/tensor_places.h"

namespace ddprun::ddp {

enum class TensorFormat : std::uint8_t {
  Safetensors,
  Pt,  // what torch.save() writes
};

// "safetensors", "pt": the ending of a file's name.
const char* extension_of(TensorFormat format);

// Lays out `tensors`, of which name, dtype and shape count.  `metadata` is kept in a safetensors
// file only.  Fails with Errc::InvalidInput for a name that is there twice or a dtype that the
// format lacks.
Result<FileLayout> lay_out(TensorFormat format, std::vector<StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata);

// Writes what is no tensor into `file`, the file's memory, which has all tensors by now.
void complete(const FileLayout& layout, char* file);

// What is in `file`, the whole of a file of either format; Python's own too.  The names of nested
// dicts are joined with '/'.  Fails with Errc::Protocol and what is wrong.
Result<StoredTensors> read_tensors(std::string_view file);

}  // namespace ddprun::ddp
