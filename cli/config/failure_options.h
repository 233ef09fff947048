// SPDX-License-Identifier: BSD-3-Clause
//
// What is to happen when a worker fails or hangs, beyond torchrun's options: which failures are not
// restarted, how long silence may last, which signals pass through, what the exit code says, and
// where events go.
#pragma once

#include "cli/config/config_builder.h"

namespace ddprun::cli {

Result<void> add_failures(Draft& draft);

}  // namespace ddprun::cli
