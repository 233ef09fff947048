// SPDX-License-Identifier: BSD-3-Clause
//
// `ddpctl explain ENDPOINT|LOGDIR`: why runs were stopped last, or have ended.
#pragma once

#include <iosfwd>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Of each run that meets there; where none does, of the one that ended last.  Fails as
// show_status() does, and with Errc::InvalidInput where the run that is asked for is not known
// there.  Of a folder: by the report.json in it (log_folder_file.h), with Errc::InvalidInput where
// there is none.
Result<void> show_explanation(const StatusQuestion& question, std::ostream& out);

}  // namespace ddprun::cli
