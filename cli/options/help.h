// SPDX-License-Identifier: BSD-3-Clause
//
// What --help prints, from the table of options.
#pragma once

#include <string>

namespace ddprun::cli {

// Fits a terminal of 100 columns; ends with a newline.
std::string help_text();

}  // namespace ddprun::cli
