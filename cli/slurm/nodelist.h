// SPDX-License-Identifier: BSD-3-Clause
//
// Slurm's way to write many node names: "node[00-03,07],login1".  Expanded here because scontrol is
// often missing where training runs, in containers above all.  What is accepted, and the order, are
// those of Slurm 22.05's `scontrol show hostnames`, with two differences: a suffix after the last
// bracket ("n[0-1].site") is understood, and a bracket that is never closed is refused, where
// scontrol makes a name of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/base/error.h"

namespace ddprun::cli {

// The most names that one list may stand for; Slurm's own limit of a range.
inline constexpr std::size_t kMaxNodes = 65536;

// The names in the order of the list, duplicates included.  A range keeps the width of its lower
// end: "[098-101]" is 098 099 100 101.  Of several brackets the last one counts fastest, then the
// first, the second, and so on.  Fails with Errc::InvalidInput and a text that shows the list and
// what is wrong with it; so does a list of no names.
Result<std::vector<std::string>> expand_nodelist(std::string_view list);

}  // namespace ddprun::cli
