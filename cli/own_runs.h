// SPDX-License-Identifier: BSD-3-Clause
//
// The runs of this user on this machine, for a person who does not name where one shows itself:
// where processes called ddprun or ddpd listen.
#pragma once

#include <string>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

// Where the only run of this user here shows itself, or the one of `question.run`.  Fails with
// Errc::InvalidInput where there is not one, and names those that there are.
Result<std::string> own_endpoint(const StatusQuestion& question);

}  // namespace ddprun::cli
