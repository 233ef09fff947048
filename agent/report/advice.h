// SPDX-License-Identifier: BSD-3-Clause
//
// What to do next after a failure, in one sentence.
#pragma once

#include <string>

namespace ddprun::agent {

struct JobReport;

// Never empty.  Pure.
std::string next_step(const JobReport& report);

}  // namespace ddprun::agent
