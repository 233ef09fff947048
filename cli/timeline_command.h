// SPDX-License-Identifier: BSD-3-Clause
//
// `ddpctl timeline ENDPOINT|LOGDIR`: what has happened to a run, as ui.perfetto.dev draws it.
#pragma once

#include <iosfwd>
#include <string>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Writes the timeline.json of a log folder, that of a run in it or of the one that began last, or
// what the host of a run knows.  To `output`, a file, or to `out` where that is empty.  A file that
// ends in the middle, since its ddprun was killed or still runs, is completed.
Result<void> show_timeline(const StatusQuestion& question, const std::string& output,
                           std::ostream& out);

}  // namespace ddprun::cli
