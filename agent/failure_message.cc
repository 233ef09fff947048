// SPDX-License-Identifier: BSD-3-Clause
#include "agent/failure_message.h"

namespace ddprun::agent {

rendezvous::Failure to_message(const Failure& failure) {
  return {.rank = failure.rank,
          .local_rank = failure.local_rank,
          .pid = failure.pid,
          .exit_code = failure.status.exit_code,
          .signal = failure.status.signal,
          .core_dumped = failure.status.core_dumped,
          .message = failure.message,
          .logs = failure.logs,
          .attempt = failure.attempt};
}

Failure from_message(const rendezvous::Failure& failure) {
  return {.rank = failure.rank,
          .local_rank = failure.local_rank,
          .pid = failure.pid,
          .status = {.exit_code = failure.exit_code,
                     .signal = failure.signal,
                     .core_dumped = failure.core_dumped},
          .message = failure.message,
          .attempt = failure.attempt,
          .host = failure.host,
          .logs = failure.logs,
          .words = failure.words,
          .is_traceback = failure.is_traceback};
}

}  // namespace ddprun::agent
