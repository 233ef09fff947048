// SPDX-License-Identifier: BSD-3-Clause
//
// Where a run goes on, as one of its nodes knew it: for a later agent of the same machine, which
// knows of no round (node_file.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/decide/messages.h"

namespace ddprun::rendezvous {

struct RunPlaces {
  std::string run_uuid{};     // the start of the run: command::Round::run_uuid
  std::vector<StandIn> at{};  // the host's first, then those of its stand-ins; without the own one

  friend bool operator==(const RunPlaces&, const RunPlaces&) = default;
};

// The host's and those of all stand-ins.
inline constexpr std::size_t kMaxRunPlaces = kMaxStandIns + 1;

}  // namespace ddprun::rendezvous
