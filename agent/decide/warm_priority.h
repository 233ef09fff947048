// SPDX-License-Identifier: BSD-3-Clause
//
// How much of a busy node the template of warm restarts gets while it imports.  Pure.
#pragma once

#include <chrono>

#include "store/base/time.h"

namespace ddprun::agent {

inline constexpr Duration kPriorityStep = std::chrono::seconds(20);

// The nice value of a template that has imported for `spent`, of an agent with `own`: at first 19,
// a sixtieth of what a worker gets of a CPU; in steps it comes to a tenth, a third, and the same.
int template_nice(Duration spent, int own);

}  // namespace ddprun::agent
