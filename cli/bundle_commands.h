// SPDX-License-Identifier: BSD-3-Clause
//
// `ddpctl bundle ENDPOINT|LOGDIR...`: what is known of a run, in one file for others to look at.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "cli/run_question.h"
#include "store/base/error.h"

namespace ddprun::cli {

inline constexpr std::uint64_t kLeastBundle = 128 * 1024;

struct BundleQuestion {
  std::vector<std::string> targets{};  // log folders, and places where nodes meet
  std::string output{};                // empty: a name with the time, in this folder
  std::uint64_t max_bytes = std::uint64_t{32} << 20;
  std::string show{};  // list this bundle instead
};

// Writes the bundle and says where, what is in it and what is not; or lists one.  `question` has
// the run and the secret.  Fails with Errc::InvalidInput where a target is neither a folder nor a
// place that answers.  The nodes of a run are asked for their files; one that gives none is named
// on stderr and, as each file that cannot be read, in the bundle's MANIFEST.txt.
Result<void> make_bundle(const BundleQuestion& bundle, const StatusQuestion& question,
                         std::ostream& out);

}  // namespace ddprun::cli
