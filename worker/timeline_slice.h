// SPDX-License-Identifier: BSD-3-Clause
//
// Something that a worker has done, for the run's timeline (agent/timeline_file.h): a line that it
// appends to the file that DDPRUN_TIMELINE_FILE names (worker/ENVIRONMENT.md).  Pure.
//
//   {"name": "checkpoint", "begin": 1763733600.25, "end": 1763733601.5, "step": 1200}
//
// Times are seconds since 1970.  What else there is, numbers and texts, is shown beside it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/base/time.h"

namespace ddprun::worker {

inline constexpr const char* kTimelineVariable = "DDPRUN_TIMELINE_FILE";

struct TimelineSlice {
  // Of a longer line nothing is read; longer texts are cut, and of more facts the first are taken.
  static constexpr std::size_t kMostLine = 4096;
  static constexpr std::size_t kMostName = 100;
  static constexpr std::size_t kMostText = 1024;
  static constexpr std::size_t kMostFacts = 16;

  std::string name;
  WallTime begin{};
  WallTime end{};
  std::vector<std::pair<std::string, std::string>> facts{};
};

// With the end of the line.
std::string to_timeline_line(const TimelineSlice& slice);

// Without it.  nullopt for what is no such line: a worker may have written anything.
std::optional<TimelineSlice> parse_timeline_line(std::string_view line);

}  // namespace ddprun::worker
