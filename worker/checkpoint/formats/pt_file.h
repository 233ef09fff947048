// SPDX-License-Identifier: BSD-3-Clause
//
// The files of torch.save(): a zip archive (zip.h) with a pickle (pickle.h) that says what the
// tensors are, and one record for the bytes of each storage.
#pragma once

#include <string_view>
#include <vector>

#include "store/base/error.h"
#include "worker/checkpoint/formats/tensor_places.h"

namespace ddprun::ddp::pt {

// A plain dict of `tensors`, each with a storage of its own, as torch.load() reads it with
// weights_only and mmap.  Fails as ddp::lay_out() does.
Result<FileLayout> lay_out(std::vector<StoredTensor> tensors);

// The tensors of a dict, also of nested ones, and its other values as text.  Fails with
// Errc::Protocol for what zip::read() and pickle::read() refuse, for a tensor that reaches beyond
// its storage or has more elements than that, and for an archive of TorchScript.
Result<StoredTensors> read(std::string_view file);

}  // namespace ddprun::ddp::pt
