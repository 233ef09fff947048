// SPDX-License-Identifier: BSD-3-Clause
//
// What to do next after a failure, in one sentence.
#pragma once

#include <string>

namespace ddprun::agent {

struct JobReport;

// Never empty.  Pure.
std::string next_step(const JobReport& report);

// Of a run that has lost what hosts the rendezvous.
inline constexpr const char* kLostRendezvous =
    "the place where the nodes meet was lost while the run went on";

// What to look at when the run has waited in vain for another node: `loss` is a sentence, "node1
// was lost (...)", or kLostRendezvous.
std::string step_after_loss(const std::string& loss);

}  // namespace ddprun::agent
