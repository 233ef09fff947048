// SPDX-License-Identifier: BSD-3-Clause
#include "store/base/exit_status.h"

#include <cstring>

namespace ddprun::process {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

std::string to_string(const ExitStatus& status) {
  if (status.signal == 0) return "exited with code " + std::to_string(status.exit_code);
  return "was killed by " + signal_name(status.signal) +
         (status.core_dumped ? " (core dumped)" : "");
}

}  // namespace ddprun::process
