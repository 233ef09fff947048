// SPDX-License-Identifier: BSD-3-Clause
//
// Why log files of this node do not hold all that its workers have written.
#pragma once

#include <string>

namespace ddprun::agent {

struct LogLoss {
  std::string why{};  // "write FILE: No space left on device"; empty: nothing is lost
  // A worker that has the file itself sees alone what the disk refuses: of it only the full disk is
  // seen.
  bool is_certain = true;
  bool is_on_console = false;  // what the files miss is on the console

  bool empty() const { return why.empty(); }
  // "miss lines: write FILE: No space left on device"
  std::string words() const { return (is_certain ? "miss lines: " : "may miss lines: ") + why; }
};

}  // namespace ddprun::agent
