// SPDX-License-Identifier: BSD-3-Clause
//
// The page /stacks/RUN (rendezvous/PROTOCOL.md) as lines for a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/page_text.h"

namespace ddprun::cli {

// "all_reduce at train.py:118", "read() at data.py:40", "sleeping in hrtimer_nanosleep".
std::string where_of(const Json& worker);

// Ranks in ascending order: "ranks 0-6, 9", "rank 7".
std::string ranks_text(const std::vector<std::int64_t>& ranks);

// The workers by where they are, the largest group first; of one `rank` its frames; the nodes that
// have not answered; and what the nodes lack for more.
Lines stack_lines(const Json& page, std::optional<int> rank);

// How much of what was asked for is there.
enum class StackAnswer {
  Complete,  // all nodes have answered
  Awaited,   // some have not yet
  Other,     // it is the answer to another request
};
StackAnswer answer_in(const Json& page, std::optional<int> rank);

}  // namespace ddprun::cli
