// SPDX-License-Identifier: BSD-3-Clause
//
// Where the time of a run went, as one line for people.
#pragma once

#include <string>

#include "agent/decide/time_account.h"

namespace ddprun::agent {

// "OOM", "lost node", "departed node", "cut-off node", "lost rendezvous", "new node".
std::string name_of(const RestartCause& cause);

// "up 2 h 13 min, 97.8 % of it training; 3 restarts cost 41 s (2 x OOM on node7, 1 lost node)".
std::string time_line(const TimeAccount& account);

// "the new workers of 3 restarts took 18 s until all ranks had connected (init_process_group);
// --warm-restarts would have saved the part of it that is imports".  The second half: if they
// `could_be_warm` and were not.  "" where it was less than a second a restart, or is not known.
std::string connecting_line(const TimeAccount& account, bool could_be_warm);

// Whether a run is to say that line: one of a few seconds without a restart is not.
bool is_worth_a_line(const TimeAccount& account);

}  // namespace ddprun::agent
