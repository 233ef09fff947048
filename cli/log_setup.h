// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <spdlog/fwd.h>

#include <memory>
#include <string>

namespace ddprun::cli {

// Makes the program's logger: lines to stderr, from `level` (spdlog's name) on, with the time to
// the millisecond; coloured on a terminal only.
std::shared_ptr<spdlog::logger> make_logger(const std::string& level);

}  // namespace ddprun::cli
