// SPDX-License-Identifier: BSD-3-Clause
//
// The timeline of a run as its page and ddpctl show it.  Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rendezvous/decide/run_view.h"
#include "rendezvous/decide/trace.h"

namespace ddprun::rendezvous {

// What has happened to a run, in the Trace Event format, in pieces.  It has at most 16 MB, the
// last.
class TraceOfRun {
 public:
  // Empty `run`: the only one that there is.  nullopt: no such run is known, or there are several.
  static std::optional<TraceOfRun> of(std::span<const RunsSource> sources, const std::string& run);

  // Appends the next piece.  Whether there are more.
  bool add(std::span<const RunsSource> sources, std::string& out);

 private:
  struct Part {
    std::size_t source = 0;
    std::uint64_t first = 0;
    std::uint64_t end = 0;
  };

  std::string run_;
  std::vector<Part> parts_;
  std::size_t part_ = 0;
  bool has_begun_ = false;
  TraceText writer_;
};

}  // namespace ddprun::rendezvous
