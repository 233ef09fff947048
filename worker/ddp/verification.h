// SPDX-License-Identifier: BSD-3-Clause
//
// Whether all ranks have built the same module.  c10d's own check compares sizes only, and on a
// difference throws on every rank but rank 0, which then waits for the others for ever; this one
// compares names, dtypes and options as well, and all ranks end alike.
#pragma once

#include <string>
#include <vector>

#include "worker/ddp/process_group.h"

namespace ddprun::ddp {

// One line for each thing that must be the same on all ranks, in order.
using Description = std::vector<std::string>;

// The first line in which `mine` differs from `reference`, in words; empty when they are equal.
std::string first_difference(const Description& mine, const Description& reference);

// Returns when all ranks give the same `description`; else every rank throws the same DdpError,
// which tells how the lowest rank that differs from rank 0 does so.  `what` is plural: "modules".
void verify_same(ProcessGroup& group, const std::string& what, const Description& description);

}  // namespace ddprun::ddp
