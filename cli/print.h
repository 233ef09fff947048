// SPDX-License-Identifier: BSD-3-Clause
//
// What a program says on stdout, and whether it arrived.
#pragma once

#include <string_view>

#include "store/base/error.h"

namespace ddprun::cli {

// Writes `text` to stdout, after what std::cout has written there.  Fails with the system's code if
// stdout did not take all of it, or of what was written before.
Result<void> print(std::string_view text);

}  // namespace ddprun::cli
