// SPDX-License-Identifier: BSD-3-Clause
//
// Where the time of a run went, as one line for people.
#pragma once

#include <string>

#include "agent/decide/time_account.h"

namespace ddprun::agent {

// "OOM", "lost node", "new node".
std::string name_of(const RestartCause& cause);

// "up 2 h 13 min, 97.8 % of it training; 3 restarts cost 41 s (2 x OOM on node7, 1 lost node)".
std::string time_line(const TimeAccount& account);

// Whether a run that ends well, or that was stopped, is to say that line: a short one without
// trouble is not.
bool is_worth_a_line(const TimeAccount& account);

}  // namespace ddprun::agent
