// SPDX-License-Identifier: BSD-3-Clause
//
// The page "/" of a host (rendezvous/page/index.html), as part of the program.
#pragma once

#include <string_view>

namespace ddprun::rendezvous {

extern const std::string_view kPageSource;

}  // namespace ddprun::rendezvous
