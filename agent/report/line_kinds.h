// SPDX-License-Identifier: BSD-3-Clause
//
// What kind of line a worker has written on stderr.  Pure.
#pragma once

#include <string_view>

namespace ddprun::agent {

bool is_blank(std::string_view line);

// What a program logs as it goes, at the level INFO or DEBUG: "INFO:root:...", "[INFO] ...",
// "2026-01-31 12:00:00 INFO ...", "... - INFO - ...".
bool is_chatter(std::string_view line);

// At the level WARNING; and torch's logs below an error, "[W1122 03:58:17.1 file.cpp:12] ...".
bool is_remark(std::string_view line);

// "/usr/lib/x.py:869: UserWarning: ...", as Python's module `warnings` writes it before the source
// line.
bool is_warning(std::string_view line);

// A progress bar: tqdm's " 50%|#####     | 1/2 [00:01<00:01,  1.00s/it]", or a row of the same sign
// and how far it is, "12/40 [======>.....] - ETA: 3s", "epoch 1 ━━━━━━━━━━ 50% 0:00:02".
bool is_progress(std::string_view line);

// "frame #3: ...", of torch's C++ backtraces.
bool is_frame_of_torch(std::string_view line);

// Of a dump of stacks, torch's or faulthandler's, whose "Fatal Python error: Aborted" only says the
// signal once more.
bool is_dump(std::string_view line);

}  // namespace ddprun::agent
