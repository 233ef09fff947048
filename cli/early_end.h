// SPDX-License-Identifier: BSD-3-Clause
//
// A signal that ends the program before the agent catches signals.
#pragma once

#include <string>

namespace ddprun::cli {

// From now on a stop signal whose action is the default one takes the empty folder `path` along,
// until somebody else catches that signal.
void remove_at_early_end(const std::string& path);

}  // namespace ddprun::cli
