// SPDX-License-Identifier: BSD-3-Clause
//
// The files of one node, packed for `ddpctl bundle`: secrets are masked before they leave it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "rendezvous/decide/bundle_piece.h"

namespace ddprun::agent {

struct NodeFiles {
  std::string program;                   // "ddprun 1.0"
  std::string log_folder;                // of the run; empty: it keeps none
  std::string environment_line;          // whose environment it is
  std::vector<std::string> environment;  // assignments, not masked
};

// An archive (archive.h) of at most `most_bytes`, at least of kLeastNodeArchive; MANIFEST.txt in it
// names what is missing.  Goes on as long as `is_wanted`.  Waits for the disk.
std::string packed_node(const NodeFiles& files, std::size_t most_bytes,
                        const std::function<bool()>& is_wanted);
inline constexpr std::size_t kLeastNodeArchive = rendezvous::kLeastNodeBundle;

}  // namespace ddprun::agent
