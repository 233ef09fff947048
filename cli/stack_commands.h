// SPDX-License-Identifier: BSD-3-Clause
//
// `ddpctl stacks ENDPOINT`: where the workers of a run are, now.
#pragma once

#include <iosfwd>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Asks the nodes for the stacks of all workers, or of one rank, and waits for them, for kPatience
// at most; nodes that have not answered by then are named.  Where others have just asked for
// something else it waits for its own time, and says so.  Fails as show_status() does, and where
// there is no such run or rank, or no worker runs.
Result<void> show_stacks(const StatusQuestion& question, std::ostream& out);

// The page that this is shown from.  `status`: the page /status, `run`: a run of it.
Result<Json> stacks_of(const StatusQuestion& question, const Json& status, const std::string& run);

}  // namespace ddprun::cli
