// SPDX-License-Identifier: BSD-3-Clause
//
// The files of all nodes of a run, asked of their agents through the host of the run
// (rendezvous/decide/bundle_inquiry.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "agent/bundle/contents.h"
#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

struct NodesQuestion {
  PageAccess access;
  std::string run;
  std::string prefix;            // of all entries: "nodes"
  std::uint64_t most_bytes = 0;  // packed, of all nodes together
};

// Gives what the nodes have packed to `add`, one node after the other.  `complain` hears of each
// node that has given nothing, and why, in a sentence.  Waits for the nodes, for some seconds each
// at most.  Fails only as `add` does.
Result<void> add_nodes(const NodesQuestion& question, const agent::AddEntry& add,
                       const std::function<void(const std::string&)>& complain);

}  // namespace ddprun::cli
