// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "agent/decide/core.h"

namespace ddprun::test {

// The end of a worker whose rank is its local rank.
inline agent::event::WorkerExited worker_exited(int local_rank, process::ExitStatus status) {
  agent::event::WorkerExited exited{.local_rank = local_rank};
  if (!status.is_success())
    exited.failure = {.rank = local_rank, .local_rank = local_rank, .pid = 1, .status = status};
  return exited;
}

// Only the first `started` workers came to be.
inline agent::event::StartFailed start_failed(int started, int exit_code = 127) {
  return {.started = started,
          .failure = {.rank = started,
                      .local_rank = started,
                      .status = {.exit_code = exit_code},
                      .message = "start x: No such file"}};
}

}  // namespace ddprun::test
