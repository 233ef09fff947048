// SPDX-License-Identifier: BSD-3-Clause
//
// Says in the timeline of the run what this rank has done (worker/timeline_slice.h).
#pragma once

#include <string>

#include "worker/timeline_slice.h"

namespace ddprun::ddp {

// The file to which this process appends; empty where no agent reads one.
std::string timeline_file_in_environment();

// Appends `slice` to `file`.  What cannot be written is left out: it is only for people who look
// at the run later.  Any thread.
void note_in_timeline(const std::string& file, const worker::TimelineSlice& slice) noexcept;

}  // namespace ddprun::ddp
