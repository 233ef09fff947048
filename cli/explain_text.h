// SPDX-License-Identifier: BSD-3-Clause
//
// Why a run was stopped last, or has ended, and which node said what when: from the page /status
// (store/PROTOCOL.md), or from the report.json of one node (agent/REPORT.md), as lines for a
// terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/page_text.h"

namespace ddprun::cli {

// So many lines are said of a run at most.
inline constexpr std::size_t kMostExplained = 15;

// Of one run of "runs" or "ended".
Lines explain_lines(const Json& run);
// The same facts: the last stop or end, the round before and after it, the nodes' events in
// between, the failure.
Json explain_json(const Json& run);

// Of a run that is over, as one node has reported it; `path`: that file.  At most as many lines.
Lines explain_report_lines(const Json& report, const std::string& path);

// The runs that are meant: those that are there, else the last one that ended; of `run`, if it is
// not empty, the same.
std::vector<Json> explained_runs(const Json& page, std::string_view run);

}  // namespace ddprun::cli
