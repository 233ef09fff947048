// SPDX-License-Identifier: BSD-3-Clause
#include "cli/event_log.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "cli/output_file.h"

namespace ddprun::cli {

Result<Fd> open_event_file(const std::string& path) {
  constexpr mode_t kMode = 0644;
  return open_output(path, OutputMode::Append, kMode, "--event-log-handler: open " + path);
}

Result<void> EventFile::write(std::string record) {
  if (is_cut_) record.insert(0, 1, '\n');
  for (std::string_view left = record; !left.empty();) {
    ssize_t count = ::write(file_.get(), left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      is_cut_ = is_cut_ || left.size() < record.size();
      return system_error(errno, "write " + path_);
    }
    left.remove_prefix(static_cast<std::size_t>(count));
  }
  is_cut_ = false;
  return {};
}

}  // namespace ddprun::cli
