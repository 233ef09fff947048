// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <spdlog/fwd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ddprun::cli {

// Makes the program's logger: lines to `write`, from `level` (spdlog's name) on, with the time to
// the millisecond.
std::shared_ptr<spdlog::logger> make_logger(const std::string& level,
                                            std::function<void(std::string_view line)> write);

}  // namespace ddprun::cli
