// SPDX-License-Identifier: BSD-3-Clause
#include "cli/event_log.h"

#include "cli/output_file.h"

namespace ddprun::cli {

Result<Fd> open_event_file(const std::string& path) {
  constexpr mode_t kMode = 0644;
  return open_output(path, OutputMode::Append, kMode, "--event-log-handler: open " + path);
}

}  // namespace ddprun::cli
