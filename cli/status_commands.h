// SPDX-License-Identifier: BSD-3-Clause
//
// `ddpctl status|nodes|ranks|waits|report|watch ENDPOINT`: what a ddprun or a ddpd at this address
// says of its runs.
#pragma once

#include <iosfwd>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Each asks once and writes lines, or JSON.  Fails with Errc::InvalidInput for an address or a
// secret that is none, and where the page is refused; else with what went wrong.
Result<void> show_status(const StatusQuestion& question, std::ostream& out);
Result<void> show_nodes(const StatusQuestion& question, std::ostream& out);
Result<void> show_ranks(const StatusQuestion& question, std::ostream& out);
Result<void> show_report(const StatusQuestion& question, std::ostream& out);

// Of a run that waits: for whom.  Asks its workers' store, too, where this process may.
Result<void> show_waits(const StatusQuestion& question, std::ostream& out);

// The status and the ranks again and again, on one screen of the terminal.  Ends when the page
// cannot be read any more, and says why, or when `out` takes nothing more.
Result<void> watch_status(const StatusQuestion& question, std::ostream& out);

}  // namespace ddprun::cli
