// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "store/base/exit_status.h"
#include "worker/error_file.h"

namespace ddprun::agent {

// One worker that has ended, and what it left behind.
struct WorkerExit {
  int local_rank = 0;
  int rank = 0;
  int pid = 0;
  process::ExitStatus status;
  std::string folder{};          // in the log folder; empty where it has none
  bool is_folder_empty = false;  // nothing lies there
  std::string cgroup{};          // its own, until the next start; empty without one
  // Of one that has failed: its error file, empty where there is none, and the last lines of its
  // stderr, at most kStderrLines, empty where they went past the agent.
  worker::ErrorReport report{};
  std::vector<std::string> stderr_lines{};
  static constexpr std::size_t kStderrLines = 300;
};

}  // namespace ddprun::agent
