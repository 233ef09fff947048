// SPDX-License-Identifier: BSD-3-Clause
#include "agent/decide/scheduler.h"

#include "store/base/exit_status.h"

namespace ddprun::agent {

worker::StopReason plain_reason_of(OutsideRequest request) {
  const char* what = request.is_stop ? "ended" : "told";
  return {.cause = worker::StopCause::Signal,
          .words = std::string(what) + " from outside by " + process::signal_name(request.signal),
          .seconds_left = std::nullopt};
}

}  // namespace ddprun::agent
