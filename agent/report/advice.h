// SPDX-License-Identifier: BSD-3-Clause
//
// What to do next after a failure, in one sentence.
#pragma once

#include <string>

namespace ddprun::agent {

struct JobReport;

// Never empty.  Pure.
std::string next_step(const JobReport& report);

// What to look at when the run has waited in vain for another node: `loss` is a sentence, "node1
// was lost (...)" or "node0:29400, where the nodes meet, ...".
std::string step_after_loss(const std::string& loss);

}  // namespace ddprun::agent
